/*
 * Weights in blocks of 32 times Q8_0 activations with AVX2, one block a step and one row times up to 4 tokens:
 *
 *     16 words of 16 bits  =  |codes| . activations with the codes' signs     (vpmaddubsw: below 2^15, as |code| <= 128 and |activation| <= 127)
 *     8 lanes of 32 bits   =  pairs of words added                            (vpmaddwd with ones)
 *     sums                +=  lanes * (d_w * d_a)
 */
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
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

/* One block: its 32 signed codes, its scale, and its factor of the activations' sums (0 for types without). */
typedef struct block {
    __m256i codes;
    float   d, m;
} block;

typedef block (*unpack_fn)(const unsigned char* p);

static inline float half_to_f32(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }

/* 32 nibbles, low ones first. */
static inline __m256i nibbles(const uint8_t qs[16])
{
    const __m128i bytes = _mm_loadu_si128((const __m128i*)(const void*)qs);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes), _mm256_set1_epi8(15));
}

/* 16 where a bit of qh is set: every byte gets the byte of qh that has its bit, then looks at the bit. */
static inline __m256i fifth_bits(const uint8_t qh[4])
{
    int32_t bits;
    memcpy(&bits, qh, sizeof bits);
    const __m256i bytes  = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202,
                                                                                           0x0101010101010101, 0));
    const __m256i select = _mm256_set1_epi64x((long long)0x8040201008040201u);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, select), select), _mm256_set1_epi8(16));
}

static inline __m256i looked_up(const int8_t table[16], __m256i codes)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)(const void*)table)), codes);
}

#define UNPACK(stem, scale, min, code_vector)                                                       \
    static inline __attribute__((always_inline)) block unpack_##stem(const unsigned char* p)        \
    {                                                                                               \
        const ht_block_##stem* w = (const void*)p;                                                  \
        return (block){ .codes = (code_vector), .d = (scale), .m = (min) };                         \
    }
UNPACK(q4_0, half_to_f32(w->d), 0.0f, _mm256_sub_epi8(nibbles(w->qs), _mm256_set1_epi8(8)))
UNPACK(q4_1, half_to_f32(w->d), half_to_f32(w->m), nibbles(w->qs))
UNPACK(q5_0, half_to_f32(w->d), 0.0f, _mm256_sub_epi8(_mm256_or_si256(nibbles(w->qs), fifth_bits(w->qh)), _mm256_set1_epi8(16)))
UNPACK(q5_1, half_to_f32(w->d), half_to_f32(w->m), _mm256_or_si256(nibbles(w->qs), fifth_bits(w->qh)))
UNPACK(q8_0, half_to_f32(w->d), 0.0f, _mm256_loadu_si256((const __m256i*)(const void*)w->qs))
UNPACK(iq4_nl, half_to_f32(w->d), 0.0f, looked_up(ht_iq4_values, nibbles(w->qs)))
UNPACK(mxfp4, ht_e8m0_half_to_f32(w->e), 0.0f, looked_up(ht_fp4_values, nibbles(w->qs)))

static inline float sum8(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s        = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline __attribute__((always_inline)) void row_times_tokens(const ht_panel* p, int64_t r, int64_t t, const size_t block_bytes,
                                                                   unpack_fn unpack, const bool has_mins, const int n_tokens)
{
    const unsigned char* w = (const unsigned char*)p->w + (size_t)r * p->w_stride;
    ht_act_row           a[TILE_TOKENS];
    __m256               sums[TILE_TOKENS];
    float                mins[TILE_TOKENS];
#pragma GCC unroll 4
    for (int j = 0; j < n_tokens; j++) {
        a[j]    = ht_act_row_q8_0((void*)(uintptr_t)((const unsigned char*)p->a + (size_t)(t + j) * p->a_stride), p->n_cols);
        sums[j] = _mm256_setzero_ps();
        mins[j] = 0.0f;
    }
    for (int64_t b = 0; b < p->n_cols / 32; b++, w += block_bytes) {
        const block   s         = unpack(w);
        const __m256i magnitude = _mm256_abs_epi8(s.codes);
#pragma GCC unroll 4
        for (int j = 0; j < n_tokens; j++) {
            const __m256i q     = _mm256_load_si256((const __m256i*)(const void*)(a[j].q + 32 * b));
            const __m256i words = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(q, s.codes));
            const __m256  lanes = _mm256_cvtepi32_ps(_mm256_madd_epi16(words, _mm256_set1_epi16(1)));
            sums[j]             = _mm256_fmadd_ps(lanes, _mm256_set1_ps(s.d * a[j].d[b]), sums[j]);
            if (has_mins) { mins[j] += s.m * a[j].sum_d[b]; }
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < n_tokens; j++) { p->y[(t + j) * p->y_stride + r] = sum8(sums[j]) + mins[j]; }
}

static inline __attribute__((always_inline)) void multiply(const ht_panel* p, const size_t block_bytes, unpack_fn unpack, const bool has_mins)
{
    int64_t t = 0;
    for (; t + TILE_TOKENS <= p->n_tokens; t += TILE_TOKENS) {
        for (int64_t r = 0; r < p->n_rows; r++) { row_times_tokens(p, r, t, block_bytes, unpack, has_mins, TILE_TOKENS); }
    }
    for (; t < p->n_tokens; t++) {
        for (int64_t r = 0; r < p->n_rows; r++) { row_times_tokens(p, r, t, block_bytes, unpack, has_mins, 1); }
    }
}

#define DOT(stem, has_mins) \
    void ht_dot_##stem##_avx2(const ht_panel* panel) { multiply(panel, sizeof(ht_block_##stem), unpack_##stem, has_mins); }
DOT(q4_0, false)
DOT(q4_1, true)
DOT(q5_0, false)
DOT(q5_1, true)
DOT(q8_0, false)
DOT(iq4_nl, false)
DOT(mxfp4, false)
#endif
