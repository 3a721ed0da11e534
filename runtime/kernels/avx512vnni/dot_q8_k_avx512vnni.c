/*
 * Weights in super-blocks of 256 times Q8_K activations with VNNI, one row times up to 4 tokens. A super-block is unpacked once into four vectors of
 * unsigned codes, each with the integer scales of its groups in the lanes that the group's products fall into:
 *
 *     lanes   =  u8 codes . s8 codes of the activations             (vpdpbusd: 4 products a lane, below 2^15 but for IQ4_XS)
 *     sum    +=  lanes * integer scales                             (vpdpwssd on the low halves; the high halves of the scales are 0)
 *
 * Signed codes are shifted up by `offset`; the activations' group sums take it off again, in integers: sum(sc (u - offset) a) =
 * sum(sc u a) - offset sum(sc sum(a)). The minima of Q2_K, Q4_K and Q5_K meet the same group sums.
 */
#if defined(__AVX512VNNI__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#include <immintrin.h>
#include <string.h>

#include "formats/block_iq4_xs.h"
#include "formats/block_q2_k.h"
#include "formats/block_q3_k.h"
#include "formats/block_q4_k.h"
#include "formats/block_q5_k.h"
#include "formats/block_q6_k.h"
#include "runtime/kernels/activations.h"
#include "runtime/kernels/variants.h"

enum { TILE_TOKENS = 4 };

typedef struct super_block {
    __m512i codes[4];  /* unsigned, values 64 k .. 64 k + 63                        */
    __m512i scales[4]; /* int32 lanes: the scale of values 4 i .. 4 i + 3           */
    __m256i sums_by;   /* int16 per 16 values: what the group sums are multiplied with: the scales (offset types) or the minima */
    float   d, dmin;
} super_block;

typedef void (*unpack_fn)(const unsigned char* w, super_block* s);

/* Constant in each instance, so that the calls are inlined. */
typedef struct traits {
    size_t    block_bytes;
    unpack_fn unpack;
    int       offset_log2; /* codes are shifted up by 2^offset_log2; -1: the type has minima instead */
    bool      wide;        /* lanes do not fit 16 bits: multiply in 32                                */
} traits;

/* --- unpacking --------------------------------------------------------------------------------------------------------- */

static inline float half_to_f32(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }

static inline __m256i load32(const uint8_t* p) { return _mm256_loadu_si256((const __m256i*)(const void*)p); }

/* 32 bytes twice, the lower copy shifted right by `low` bits, the upper by `high`, `mask` applied to each byte. */
static inline __attribute__((always_inline)) __m512i twice(__m256i bytes, short low, short high, char mask)
{
    const __m512i shift = _mm512_inserti64x4(_mm512_set1_epi16(low), _mm256_set1_epi16(high), 1);
    return _mm512_and_si512(_mm512_srlv_epi16(_mm512_broadcast_i64x4(bytes), shift), _mm512_set1_epi8(mask));
}

/* `value` where bit `low` (lower copy) or `high` (upper copy) of the 32 bytes is set. */
static inline __attribute__((always_inline)) __m512i bit_twice(__m256i bytes, int low, int high, char value)
{
    const __m512i bits = _mm512_inserti64x4(_mm512_set1_epi8((char)(1 << low)), _mm256_set1_epi8((char)(1 << high)), 1);
    return _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(_mm512_broadcast_i64x4(bytes), bits), _mm512_set1_epi8(value));
}

/* Scales of 8 groups of 32 (int32 lanes) to the lanes of the four code vectors: 8 lanes a group. */
static inline void spread8(__m256i scales, __m512i out[4])
{
    const __m512i wide = _mm512_castsi256_si512(scales);
    __m512i       pick = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++, pick = _mm512_add_epi32(pick, _mm512_set1_epi32(2))) { out[k] = _mm512_permutexvar_epi32(pick, wide); }
}

/* Scales of 16 groups of 16 (int16, the high halves of the lanes become 0): 4 lanes a group. */
static inline void spread16(__m256i scales, __m512i out[4])
{
    const __m512i wide = _mm512_cvtepu16_epi32(scales);
    __m512i       pick = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++, pick = _mm512_add_epi32(pick, _mm512_set1_epi32(4))) { out[k] = _mm512_permutexvar_epi32(pick, wide); }
}

/* Q4_K's and Q5_K's 12 bytes, eight at a time in 64-bit words: scales to lanes, minima to int16 twice each (for two sums of 16). */
static inline void unpack_k4_scales(const uint8_t packed[12], super_block* s)
{
    uint32_t p[3];
    memcpy(p, packed, sizeof p);
    const uint64_t sc = (p[0] & 0x3F3F3F3Fu) | (uint64_t)((p[2] & 0x0F0F0F0Fu) | (p[0] >> 2 & 0x30303030u)) << 32;
    const uint64_t mn = (p[1] & 0x3F3F3F3Fu) | (uint64_t)((p[2] >> 4 & 0x0F0F0F0Fu) | (p[1] >> 2 & 0x30303030u)) << 32;
    spread8(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)sc)), s->scales);
    const __m256i min = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)mn));
    s->sums_by        = _mm256_or_si256(min, _mm256_slli_epi32(min, 16));
}

/* Q3_K's 12 bytes, eight at a time in 64-bit words, to 16 scales. */
static inline __m256i unpack_k3_scales(const uint8_t packed[12])
{
    const uint64_t nibble = 0x0F0F0F0F0F0F0F0Fu;
    const uint32_t two    = 0x03030303u;
    uint64_t       low;
    uint32_t       high;
    memcpy(&low, packed, sizeof low);
    memcpy(&high, packed + 8, sizeof high);
    const uint64_t first = (low & nibble) | ((high & two) | (uint64_t)(high >> 2 & two) << 32) << 4;
    const uint64_t last  = (low >> 4 & nibble) | ((high >> 4 & two) | (uint64_t)(high >> 6 & two) << 32) << 4;
    return _mm256_sub_epi16(_mm256_cvtepu8_epi16(_mm_set_epi64x((long long)last, (long long)first)), _mm256_set1_epi16(32));
}

#define UNPACK(stem) static inline __attribute__((always_inline)) void unpack_##stem(const unsigned char* p, super_block* s)

UNPACK(q2_k)
{
    const ht_block_q2_k* w      = (const void*)p;
    const __m128i        scales = _mm_loadu_si128((const __m128i*)(const void*)w->scales), low = _mm_set1_epi8(15);
#pragma GCC unroll 2
    for (int run = 0; run < 2; run++) {
        const __m256i qs       = load32(w->qs + 32 * run);
        s->codes[2 * run]      = twice(qs, 0, 2, 3);
        s->codes[2 * run + 1]  = twice(qs, 4, 6, 3);
    }
    spread16(_mm256_cvtepu8_epi16(_mm_and_si128(scales, low)), s->scales);
    s->sums_by = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(scales, 4), low));
    s->d       = half_to_f32(w->d);
    s->dmin    = half_to_f32(w->dmin);
}

UNPACK(q3_k)
{
    const ht_block_q3_k* w     = (const void*)p;
    const __m256i        hmask = load32(w->hmask);
#pragma GCC unroll 2
    for (int run = 0; run < 2; run++) {
        const __m256i qs      = load32(w->qs + 32 * run);
        s->codes[2 * run]     = _mm512_or_si512(twice(qs, 0, 2, 3), bit_twice(hmask, 4 * run, 4 * run + 1, 4));
        s->codes[2 * run + 1] = _mm512_or_si512(twice(qs, 4, 6, 3), bit_twice(hmask, 4 * run + 2, 4 * run + 3, 4));
    }
    s->sums_by = unpack_k3_scales(w->scales);
    spread16(s->sums_by, s->scales);
    s->d = half_to_f32(w->d);
}

UNPACK(q4_k)
{
    const ht_block_q4_k* w = (const void*)p;
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) { s->codes[k] = twice(load32(w->qs + 32 * k), 0, 4, 15); }
    unpack_k4_scales(w->scales, s);
    s->d    = half_to_f32(w->d);
    s->dmin = half_to_f32(w->dmin);
}

UNPACK(q5_k)
{
    const ht_block_q5_k* w  = (const void*)p;
    const __m256i        qh = load32(w->qh);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        s->codes[k] = _mm512_or_si512(twice(load32(w->qs + 32 * k), 0, 4, 15), bit_twice(qh, 2 * k, 2 * k + 1, 16));
    }
    unpack_k4_scales(w->scales, s);
    s->d    = half_to_f32(w->d);
    s->dmin = half_to_f32(w->dmin);
}

UNPACK(q6_k)
{
    const ht_block_q6_k* w = (const void*)p;
#pragma GCC unroll 2
    for (int run = 0; run < 2; run++) {
        const __m512i ql  = _mm512_loadu_si512((const void*)(w->ql + 64 * run)), low = _mm512_set1_epi8(15);
        const __m256i qh  = load32(w->qh + 32 * run);
        s->codes[2 * run] = _mm512_or_si512(_mm512_and_si512(ql, low), _mm512_slli_epi16(twice(qh, 0, 2, 3), 4));
        s->codes[2 * run + 1] =
            _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(ql, 4), low), _mm512_slli_epi16(twice(qh, 4, 6, 3), 4));
    }
    s->sums_by = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)(const void*)w->scales));
    spread16(s->sums_by, s->scales);
    s->d = half_to_f32(w->d);
}

UNPACK(iq4_xs)
{
    const ht_block_iq4_xs* w      = (const void*)p;
    const __m128i          values = _mm_add_epi8(_mm_loadu_si128((const __m128i*)(const void*)ht_iq4_values), _mm_set1_epi8((char)128));
    const __m512i          table = _mm512_broadcast_i32x4(values), halves = _mm512_set_epi64(3, 2, 3, 2, 1, 0, 1, 0);
    const __m512i          shift = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0, 0x0004000400040004, 0x0004000400040004, 0, 0);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) { /* two groups of 16 bytes, each to its low nibbles, then its high ones */
        const __m512i qs = _mm512_permutexvar_epi64(halves, _mm512_castsi256_si512(load32(w->qs + 32 * k)));
        s->codes[k]      = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srlv_epi16(qs, shift), _mm512_set1_epi8(15)));
    }
    uint32_t low;
    memcpy(&low, w->scales_l, sizeof low);
    const __m256i low4  = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)low), _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0)),
                                           _mm256_set1_epi32(15));
    const __m256i high2 = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(w->scales_h), _mm256_set_epi32(14, 12, 10, 8, 6, 4, 2, 0)),
                                           _mm256_set1_epi32(3));
    const __m256i sc    = _mm256_sub_epi32(_mm256_or_si256(low4, _mm256_slli_epi32(high2, 4)), _mm256_set1_epi32(32));
    spread8(sc, s->scales);
    s->sums_by = _mm256_or_si256(_mm256_and_si256(sc, _mm256_set1_epi32(0xFFFF)), _mm256_slli_epi32(sc, 16));
    s->d       = half_to_f32(w->d);
}

/* --- the loop ---------------------------------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) void row_times_tokens(const ht_panel* p, int64_t r, int64_t t, const traits* type, const int n_tokens)
{
    const unsigned char* w = (const unsigned char*)p->w + (size_t)r * p->w_stride;
    ht_act_row           a[TILE_TOKENS];
    __m512               sums[TILE_TOKENS];
    __m256               mins[TILE_TOKENS];
#pragma GCC unroll 4
    for (int j = 0; j < n_tokens; j++) {
        a[j]    = ht_act_row_q8_k((void*)(uintptr_t)((const unsigned char*)p->a + (size_t)(t + j) * p->a_stride), p->n_cols);
        sums[j] = _mm512_setzero_ps();
        mins[j] = _mm256_setzero_ps();
    }
    for (int64_t b = 0; b < p->n_cols / 256; b++, w += type->block_bytes) {
        super_block s;
        type->unpack(w, &s);
#pragma GCC unroll 4
        for (int j = 0; j < n_tokens; j++) {
            const int8_t* q   = a[j].q + 256 * b;
            __m512i       sum = _mm512_setzero_si512();
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) {
                const __m512i lanes = _mm512_dpbusd_epi32(_mm512_setzero_si512(), s.codes[k], _mm512_load_si512((const void*)(q + 64 * k)));
                sum = type->wide ? _mm512_add_epi32(sum, _mm512_mullo_epi32(lanes, s.scales[k])) : _mm512_dpwssd_epi32(sum, lanes, s.scales[k]);
            }
            const __m256i by_sums = _mm256_madd_epi16(s.sums_by, _mm256_load_si256((const __m256i*)(const void*)(a[j].sums + 16 * b)));
            if (type->offset_log2 >= 0) {
                sum = _mm512_sub_epi32(sum, _mm512_zextsi256_si512(_mm256_slli_epi32(by_sums, type->offset_log2)));
            } else {
                mins[j] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(by_sums), _mm256_set1_ps(s.dmin * a[j].d[b]), mins[j]);
            }
            sums[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(s.d * a[j].d[b]), sums[j]);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < n_tokens; j++) {
        const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sums[j]), _mm512_extractf32x8_ps(sums[j], 1));
        p->y[(t + j) * p->y_stride + r] = _mm512_reduce_add_ps(_mm512_zextps256_ps512(_mm256_sub_ps(half, mins[j])));
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

#define DOT(stem, offset_log2, wide)                                                                    \
    void ht_dot_##stem##_avx512vnni(const ht_panel* panel)                                              \
    {                                                                                                   \
        static const traits type = { sizeof(ht_block_##stem), unpack_##stem, offset_log2, wide };       \
        multiply(panel, &type);                                                                         \
    }
DOT(q2_k, -1, false)
DOT(q3_k, 2, false)
DOT(q4_k, -1, false)
DOT(q5_k, -1, false)
DOT(q6_k, 5, false)
DOT(iq4_xs, 7, true)
#endif
