/*
 * Weights in blocks of 32 times Q8_0 activations with VNNI, two blocks a step and one row times up to 4 tokens:
 *
 *     lanes 0..7 | 8..15  =  u8 codes of block b | b + 1   .   s8 codes of the activations         (vpdpbusd: 4 products a lane)
 *     sums               +=  lanes * (d_w * d_a of block b | b + 1)
 *
 * vpdpbusd wants unsigned codes, so signed ones are shifted up by `offset`; sum_d, which every activation block carries, takes it off again:
 * sum(d (u - offset) a) = d sum(u a) - offset d sum(a). The same term serves the m of Q4_1 and Q5_1. Scales are fetched for 8 blocks at once.
 */
#if defined(__AVX512VNNI__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#include <immintrin.h>
#include <string.h>

#include "formats/block_iq4_nl.h"
#include "formats/block_mxfp4.h"
#include "formats/block_q4_0.h"
#include "formats/block_q4_1.h"
#include "formats/block_q5_0.h"
#include "formats/block_q5_1.h"
#include "formats/block_q8_0.h"
#include "runtime/kernels/activations.h"
#include "runtime/kernels/variants.h"

enum { TILE_TOKENS = 4 };

typedef __m512i (*codes_fn)(const unsigned char* b0, const unsigned char* b1);
typedef __m256 (*scales_fn)(const unsigned char* w, int n);

/* What the shared loop needs to know of a type; constant in each instance, so that the calls are inlined. */
typedef struct traits {
    size_t    block_bytes;
    codes_fn  codes;  /* 64 unsigned codes of two blocks                                                */
    scales_fn scales; /* d of n <= 8 blocks, zeros beyond                                               */
    scales_fn mins;   /* the factor of sum_d; NULL: the scales times -offset                            */
    float     offset;
} traits;

/* --- scales ------------------------------------------------------------------------------------------------------------ */

static inline uint16_t half_at(const unsigned char* p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

/* The half at `at` of n blocks. */
static inline __attribute__((always_inline)) __m256 halves(const unsigned char* w, const size_t block_bytes, const size_t at, int n)
{
    size_t i[8];
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) { i[k] = (size_t)(k < n ? k : n - 1) * block_bytes + at; }
    const __m128i h = _mm_set_epi16((short)half_at(w + i[7]), (short)half_at(w + i[6]), (short)half_at(w + i[5]), (short)half_at(w + i[4]),
                                    (short)half_at(w + i[3]), (short)half_at(w + i[2]), (short)half_at(w + i[1]), (short)half_at(w + i[0]));
    return _mm256_maskz_cvtph_ps((__mmask8)((1u << n) - 1u), h);
}

#define HALF_SCALES(name, stem, field)                                                                                           \
    static inline __attribute__((always_inline)) __m256 name(const unsigned char* w, int n)                                      \
    {                                                                                                                            \
        return halves(w, sizeof(ht_block_##stem), offsetof(ht_block_##stem, field), n);                                          \
    }
HALF_SCALES(scales_q4_0, q4_0, d)
HALF_SCALES(scales_q4_1, q4_1, d)
HALF_SCALES(mins_q4_1, q4_1, m)
HALF_SCALES(scales_q5_0, q5_0, d)
HALF_SCALES(scales_q5_1, q5_1, d)
HALF_SCALES(mins_q5_1, q5_1, m)
HALF_SCALES(scales_q8_0, q8_0, d)
HALF_SCALES(scales_iq4_nl, iq4_nl, d)

static inline __attribute__((always_inline)) __m256 scales_mxfp4(const unsigned char* w, int n)
{
    float d[8] = { 0.0f };
    for (int k = 0; k < n; k++) { d[k] = ht_e8m0_half_to_f32(w[(size_t)k * sizeof(ht_block_mxfp4)]); }
    return _mm256_loadu_ps(d);
}

/* --- codes ------------------------------------------------------------------------------------------------------------- */

/* 32 nibbles of each of two blocks, low nibbles first. */
static inline __m512i nibbles(const unsigned char* qs0, const unsigned char* qs1)
{
    const __m512i both  = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)(const void*)qs0)), 0xFF00,
                                                      _mm_loadu_si128((const __m128i*)(const void*)qs1));
    const __m512i shift = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0, 0x0004000400040004, 0x0004000400040004, 0, 0);
    return _mm512_and_si512(_mm512_srlv_epi16(both, shift), _mm512_set1_epi8(15));
}

/* Adds 16 where a bit of the two blocks' qh is set. */
static inline __m512i fifth_bits(__m512i low, const unsigned char* qh0, const unsigned char* qh1)
{
    uint32_t h0, h1;
    memcpy(&h0, qh0, sizeof h0);
    memcpy(&h1, qh1, sizeof h1);
    return _mm512_mask_add_epi8(low, (__mmask64)h1 << 32 | h0, low, _mm512_set1_epi8(16));
}

/* table[nibble], shifted up to be unsigned. */
static inline __m512i looked_up(const int8_t table[16], int offset, __m512i codes)
{
    const __m128i values = _mm_add_epi8(_mm_loadu_si128((const __m128i*)(const void*)table), _mm_set1_epi8((char)offset));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), codes);
}

#define AT(b, stem, field) ((b) + offsetof(ht_block_##stem, field))
#define CODES(stem) static inline __attribute__((always_inline)) __m512i codes_##stem(const unsigned char* b0, const unsigned char* b1)

CODES(q4_0) { return nibbles(AT(b0, q4_0, qs), AT(b1, q4_0, qs)); }
CODES(q4_1) { return nibbles(AT(b0, q4_1, qs), AT(b1, q4_1, qs)); }
CODES(q5_0) { return fifth_bits(nibbles(AT(b0, q5_0, qs), AT(b1, q5_0, qs)), AT(b0, q5_0, qh), AT(b1, q5_0, qh)); }
CODES(q5_1) { return fifth_bits(nibbles(AT(b0, q5_1, qs), AT(b1, q5_1, qs)), AT(b0, q5_1, qh), AT(b1, q5_1, qh)); }
CODES(iq4_nl) { return looked_up(ht_iq4_values, 128, nibbles(AT(b0, iq4_nl, qs), AT(b1, iq4_nl, qs))); }
CODES(mxfp4) { return looked_up(ht_fp4_values, 12, nibbles(AT(b0, mxfp4, qs), AT(b1, mxfp4, qs))); }
CODES(q8_0)
{
    const __m256i low = _mm256_loadu_si256((const __m256i*)(const void*)AT(b0, q8_0, qs));
    const __m256i high = _mm256_loadu_si256((const __m256i*)(const void*)AT(b1, q8_0, qs));
    return _mm512_xor_si512(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), _mm512_set1_epi8((char)0x80)); /* + 128 */
}

/* --- the loop ---------------------------------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) void row_times_tokens(const ht_panel* p, int64_t r, int64_t t, const traits* type, const int n_tokens)
{
    const unsigned char* w        = (const unsigned char*)p->w + (size_t)r * p->w_stride;
    const int64_t        n_blocks = p->n_cols / 32;
    ht_act_row           a[TILE_TOKENS];
    __m512               sums[TILE_TOKENS];
    __m256               shifts[TILE_TOKENS];
#pragma GCC unroll 4
    for (int j = 0; j < n_tokens; j++) {
        a[j]      = ht_act_row_q8_0((void*)(uintptr_t)((const unsigned char*)p->a + (size_t)(t + j) * p->a_stride), p->n_cols);
        sums[j]   = _mm512_setzero_ps();
        shifts[j] = _mm256_setzero_ps();
    }
    for (int64_t b = 0; b < n_blocks; b += 8, w += 8 * type->block_bytes) {
        const int      n    = n_blocks - b < 8 ? (int)(n_blocks - b) : 8;
        const __mmask8 mask = (__mmask8)((1u << n) - 1u);
        const __m256   d_w  = type->scales(w, n), m_w = type->mins ? type->mins(w, n) : d_w;
        __m512         scales[TILE_TOKENS];
#pragma GCC unroll 4
        for (int j = 0; j < n_tokens; j++) {
            scales[j] = _mm512_castps256_ps512(_mm256_mul_ps(d_w, _mm256_maskz_loadu_ps(mask, a[j].d + b)));
            shifts[j] = _mm256_fmadd_ps(m_w, _mm256_maskz_loadu_ps(mask, a[j].sum_d + b), shifts[j]);
        }
        __m512i pick = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0); /* lanes of `scales` */
        for (int k = 0; k < n; k += 2) {
            /* the second block of the last pair may be missing: any codes will do, its scale is zero */
            const unsigned char* b0 = w + (size_t)k * type->block_bytes;
            const __m512i        u  = type->codes(b0, k + 1 < n ? b0 + type->block_bytes : b0);
#pragma GCC unroll 4
            for (int j = 0; j < n_tokens; j++) {
                const __m512i q    = _mm512_load_si512((const void*)(a[j].q + 32 * (b + k)));
                const __m512  dots = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), u, q));
                sums[j]            = _mm512_fmadd_ps(dots, _mm512_permutexvar_ps(pick, scales[j]), sums[j]);
            }
            pick = _mm512_add_epi32(pick, _mm512_set1_epi32(2));
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < n_tokens; j++) {
        const __m256 shift = type->mins ? shifts[j] : _mm256_mul_ps(shifts[j], _mm256_set1_ps(-type->offset));
        const __m256 half  = _mm256_add_ps(_mm512_castps512_ps256(sums[j]), _mm512_extractf32x8_ps(sums[j], 1));
        p->y[(t + j) * p->y_stride + r] = _mm512_reduce_add_ps(_mm512_zextps256_ps512(_mm256_add_ps(half, shift)));
    }
}

static inline __attribute__((always_inline)) void multiply(const ht_panel* p, const traits* type)
{
    int64_t t = 0;
    for (; t + TILE_TOKENS <= p->n_tokens; t += TILE_TOKENS) {
        for (int64_t r = 0; r < p->n_rows; r++) { row_times_tokens(p, r, t, type, TILE_TOKENS); }
    }
    for (; t < p->n_tokens; t++) {
        for (int64_t r = 0; r < p->n_rows; r++) { row_times_tokens(p, r, t, type, 1); }
    }
}

#define DOT_OFFSET(stem, offset)                                                                                                 \
    void ht_dot_##stem##_avx512vnni(const ht_panel* panel)                                                                       \
    {                                                                                                                            \
        static const traits type = { sizeof(ht_block_##stem), codes_##stem, scales_##stem, NULL, offset };                       \
        multiply(panel, &type);                                                                                                  \
    }
#define DOT_MINS(stem)                                                                                                           \
    void ht_dot_##stem##_avx512vnni(const ht_panel* panel)                                                                       \
    {                                                                                                                            \
        static const traits type = { sizeof(ht_block_##stem), codes_##stem, scales_##stem, mins_##stem, 0.0f };                  \
        multiply(panel, &type);                                                                                                  \
    }
DOT_OFFSET(q4_0, 8.0f)
DOT_MINS(q4_1)
DOT_OFFSET(q5_0, 16.0f)
DOT_MINS(q5_1)
DOT_OFFSET(q8_0, 128.0f)
DOT_OFFSET(iq4_nl, 128.0f)
DOT_OFFSET(mxfp4, 12.0f)
#endif
