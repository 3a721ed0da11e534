/*
 * Weights in super-blocks of 256 times Q8_K activations with AVX2, one row times up to 4 tokens. A super-block is unpacked once; then, 32 values a step:
 *
 *     16 words of 16 bits  =  u8 codes . s8 codes of the activations     (vpmaddubsw: codes are at most 63, so below 2^15)
 *     sum                 +=  words * integer scales, in pairs            (vpmaddwd)
 *
 * Signed codes are shifted up by `offset`; the activations' group sums take it off again, in integers. The minima of Q2_K, Q4_K and Q5_K meet the
 * same sums. IQ4_XS's levels are too large to be shifted: they give their signs to the activations instead.
 */
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
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
    __m256i codes[8];   /* 32 bytes each                                           */
    int16_t scales[16]; /* per 16 values                                           */
    __m256i sums_by;    /* int16 per 16 values: what the group sums are multiplied with: the scales (offset types) or the minima */
    float   d, dmin;
} super_block;

typedef void (*unpack_fn)(const unsigned char* p, super_block* s);

/* Constant in each instance, so that the calls are inlined. */
typedef struct traits {
    size_t    block_bytes;
    unpack_fn unpack;
    int       offset_log2; /* codes are shifted up by 2^offset_log2; otherwise -1      */
    bool      has_mins;
    bool      is_signed;   /* codes are signed bytes                                   */
} traits;

/* --- unpacking --------------------------------------------------------------------------------------------------------- */

static inline float   half_to_f32(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
static inline __m256i load32(const uint8_t* p) { return _mm256_loadu_si256((const __m256i*)(const void*)p); }

static inline __m256i masked(__m256i bytes, int shift, char mask)
{
    return _mm256_and_si256(_mm256_srli_epi16(bytes, shift), _mm256_set1_epi8(mask));
}

/* `value` where bit `bit` of a byte is set. */
static inline __m256i where_bit(__m256i bytes, int bit, char value)
{
    const __m256i select = _mm256_set1_epi8((char)(1 << bit));
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, select), select), _mm256_set1_epi8(value));
}

/* Q4_K's and Q5_K's 12 bytes: scales and minima of 8 groups of 32, twice each for 16 groups of 16. */
static inline void unpack_k4_scales(const uint8_t packed[12], super_block* s)
{
    uint32_t p[3];
    memcpy(p, packed, sizeof p);
    const uint64_t sc  = (p[0] & 0x3F3F3F3Fu) | (uint64_t)((p[2] & 0x0F0F0F0Fu) | (p[0] >> 2 & 0x30303030u)) << 32;
    const uint64_t mn  = (p[1] & 0x3F3F3F3Fu) | (uint64_t)((p[2] >> 4 & 0x0F0F0F0Fu) | (p[1] >> 2 & 0x30303030u)) << 32;
    const __m256i  sc2 = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)sc)), mn2 = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)mn));
    _mm256_storeu_si256((__m256i*)(void*)s->scales, _mm256_or_si256(sc2, _mm256_slli_epi32(sc2, 16)));
    s->sums_by = _mm256_or_si256(mn2, _mm256_slli_epi32(mn2, 16));
}

#define UNPACK(stem) static inline __attribute__((always_inline)) void unpack_##stem(const unsigned char* p, super_block* s)

UNPACK(q2_k)
{
    const ht_block_q2_k* w      = (const void*)p;
    const __m128i        scales = _mm_loadu_si128((const __m128i*)(const void*)w->scales), low = _mm_set1_epi8(15);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) { s->codes[k] = masked(load32(w->qs + 32 * (k / 4)), 2 * (k % 4), 3); }
    _mm256_storeu_si256((__m256i*)(void*)s->scales, _mm256_cvtepu8_epi16(_mm_and_si128(scales, low)));
    s->sums_by = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(scales, 4), low));
    s->d       = half_to_f32(w->d);
    s->dmin    = half_to_f32(w->dmin);
}

UNPACK(q3_k)
{
    const ht_block_q3_k* w     = (const void*)p;
    const __m256i        hmask = load32(w->hmask);
    int8_t               sc[16];
    ht_k3_scales_unpack(w->scales, sc);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        s->codes[k] = _mm256_or_si256(masked(load32(w->qs + 32 * (k / 4)), 2 * (k % 4), 3), where_bit(hmask, k, 4));
    }
    s->sums_by = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)(const void*)sc));
    _mm256_storeu_si256((__m256i*)(void*)s->scales, s->sums_by);
    s->d = half_to_f32(w->d);
}

UNPACK(q4_k)
{
    const ht_block_q4_k* w = (const void*)p;
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) { s->codes[k] = masked(load32(w->qs + 32 * (k / 2)), 4 * (k % 2), 15); }
    unpack_k4_scales(w->scales, s);
    s->d    = half_to_f32(w->d);
    s->dmin = half_to_f32(w->dmin);
}

UNPACK(q5_k)
{
    const ht_block_q5_k* w  = (const void*)p;
    const __m256i        qh = load32(w->qh);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        s->codes[k] = _mm256_or_si256(masked(load32(w->qs + 32 * (k / 2)), 4 * (k % 2), 15), where_bit(qh, k, 16));
    }
    unpack_k4_scales(w->scales, s);
    s->d    = half_to_f32(w->d);
    s->dmin = half_to_f32(w->dmin);
}

UNPACK(q6_k)
{
    const ht_block_q6_k* w = (const void*)p;
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        const int     run = k / 4, in_run = k % 4;
        const __m256i low  = masked(load32(w->ql + 64 * run + 32 * (in_run % 2)), 4 * (in_run / 2), 15);
        const __m256i high = masked(load32(w->qh + 32 * run), 2 * in_run, 3);
        s->codes[k]        = _mm256_or_si256(low, _mm256_slli_epi16(high, 4));
    }
    s->sums_by = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)(const void*)w->scales));
    _mm256_storeu_si256((__m256i*)(void*)s->scales, s->sums_by);
    s->d = half_to_f32(w->d);
}

UNPACK(iq4_xs)
{
    const ht_block_iq4_xs* w     = (const void*)p;
    const __m256i          table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)(const void*)ht_iq4_values));
    uint32_t               low;
    memcpy(&low, w->scales_l, sizeof low);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        const __m128i qs      = _mm_loadu_si128((const __m128i*)(const void*)(w->qs + 16 * k));
        s->codes[k]           = _mm256_shuffle_epi8(table, masked(_mm256_set_m128i(_mm_srli_epi16(qs, 4), qs), 0, 15));
        s->scales[2 * k]      = (int16_t)((int)((low >> (4 * k) & 15) | (uint32_t)(w->scales_h >> (2 * k) & 3) << 4) - 32);
        s->scales[2 * k + 1]  = s->scales[2 * k];
    }
    s->sums_by = _mm256_setzero_si256();
    s->d       = half_to_f32(w->d);
}

/* --- the loop ---------------------------------------------------------------------------------------------------------- */

static inline float sum8(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s        = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline __attribute__((always_inline)) void row_times_tokens(const ht_panel* p, int64_t r, int64_t t, const traits* type, const int n_tokens)
{
    const unsigned char* w = (const unsigned char*)p->w + (size_t)r * p->w_stride;
    ht_act_row           a[TILE_TOKENS];
    __m256               sums[TILE_TOKENS], mins[TILE_TOKENS];
#pragma GCC unroll 4
    for (int j = 0; j < n_tokens; j++) {
        a[j]    = ht_act_row_q8_k((void*)(uintptr_t)((const unsigned char*)p->a + (size_t)(t + j) * p->a_stride), p->n_cols);
        sums[j] = _mm256_setzero_ps();
        mins[j] = _mm256_setzero_ps();
    }
    for (int64_t b = 0; b < p->n_cols / 256; b++, w += type->block_bytes) {
        super_block s;
        type->unpack(w, &s);
#pragma GCC unroll 4
        for (int j = 0; j < n_tokens; j++) {
            __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
            for (int k = 0; k < 8; k++) {
                const __m256i q     = _mm256_load_si256((const __m256i*)(const void*)(a[j].q + 256 * b + 32 * k)), u = s.codes[k];
                const __m256i scale = _mm256_set_m128i(_mm_set1_epi16(s.scales[2 * k + 1]), _mm_set1_epi16(s.scales[2 * k]));
                const __m256i words = type->is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(u), _mm256_sign_epi8(q, u)) : _mm256_maddubs_epi16(u, q);
                sum                 = _mm256_add_epi32(sum, _mm256_madd_epi16(words, scale));
            }
            const __m256i by_sums = _mm256_madd_epi16(s.sums_by, _mm256_load_si256((const __m256i*)(const void*)(a[j].sums + 16 * b)));
            if (type->offset_log2 >= 0) { sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(by_sums, type->offset_log2)); }
            if (type->has_mins) { mins[j] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(by_sums), _mm256_set1_ps(s.dmin * a[j].d[b]), mins[j]); }
            sums[j] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(s.d * a[j].d[b]), sums[j]);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < n_tokens; j++) { p->y[(t + j) * p->y_stride + r] = sum8(_mm256_sub_ps(sums[j], mins[j])); }
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

#define DOT(stem, offset_log2, has_mins, is_signed)                                                                     \
    void ht_dot_##stem##_avx2(const ht_panel* panel)                                                                    \
    {                                                                                                                   \
        static const traits type = { sizeof(ht_block_##stem), unpack_##stem, offset_log2, has_mins, is_signed };        \
        multiply(panel, &type);                                                                                         \
    }
DOT(q2_k, -1, true, false)
DOT(q3_k, 2, false, false)
DOT(q4_k, -1, true, false)
DOT(q5_k, -1, true, false)
DOT(q6_k, 5, false, false)
DOT(iq4_xs, -1, false, true)
#endif
