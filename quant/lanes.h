/*
 * Lanes: the small vectors in which the searching encoders think. A lane is one group of weights that share a scale, so a loop over the
 * elements of a group handles HT_LANES groups at once, sums never cross lanes, and every lane goes through the same operations in the same
 * order whatever the width. That is what makes the encoders' bytes the same for every instruction set; it needs -ffp-contract=off, and fused only where it is written.
 *
 * Operators work on ht_lanes as on float (GCC/Clang vector extension). The few operations that C has no operator for are below. No lane may
 * hold NaN where min, max or select compare.
 *
 * For the encoders of quant/ only: an includer is compiled once per instruction set, so everything here is static.
 */
#ifndef HT_QUANT_LANES_H
#define HT_QUANT_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define HT_LANES 16
#elif defined(__AVX2__)
#define HT_LANES 8
#else
#define HT_LANES 4
#endif

typedef float   ht_lanes __attribute__((vector_size(4 * HT_LANES)));
typedef int32_t ht_lanes_int __attribute__((vector_size(4 * HT_LANES)));

#define HT_INLINE static inline __attribute__((always_inline, unused))

HT_INLINE ht_lanes lanes_set(float value) { return value - (ht_lanes){ 0 }; }

HT_INLINE ht_lanes lanes_load(const float* p)
{
    ht_lanes v;
    memcpy(&v, p, sizeof v);
    return v;
}

HT_INLINE void lanes_store(float* p, ht_lanes v) { memcpy(p, &v, sizeof v); }

HT_INLINE void lanes_store_int(int32_t* p, ht_lanes_int v) { memcpy(p, &v, sizeof v); }

/* a < b ? yes : no */
HT_INLINE ht_lanes lanes_select_less(ht_lanes a, ht_lanes b, ht_lanes yes, ht_lanes no)
{
#if defined(__AVX512F__)
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
#elif defined(__AVX2__)
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
#else
    const ht_lanes_int less = a < b;
    return (ht_lanes)((less & (ht_lanes_int)yes) | (~less & (ht_lanes_int)no));
#endif
}

/* a < b ? a : b, and a > b ? a : b */
HT_INLINE ht_lanes lanes_min(ht_lanes a, ht_lanes b)
{
#if defined(__AVX512F__)
    return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_min_ps(a, b);
#else
    return lanes_select_less(a, b, a, b);
#endif
}

HT_INLINE ht_lanes lanes_max(ht_lanes a, ht_lanes b)
{
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    return lanes_select_less(b, a, a, b);
#endif
}

HT_INLINE ht_lanes lanes_clamp(ht_lanes v, float low, float high)
{
    return lanes_min(lanes_max(v, lanes_set(low)), lanes_set(high));
}

HT_INLINE ht_lanes lanes_abs(ht_lanes v) { return (ht_lanes)((ht_lanes_int)v & 0x7FFFFFFF); }

/* a * b + c, rounded once: for the long products, where the second rounding would cost half the speed. In software without FMA, for the same bits. */
HT_INLINE ht_lanes lanes_multiply_add(ht_lanes a, float b, ht_lanes c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, _mm512_set1_ps(b), c);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, _mm256_set1_ps(b), c);
#else
    for (int k = 0; k < HT_LANES; k++) { c[k] = fmaf(a[k], b, c[k]); }
    return c;
#endif
}

/* Nearest integer, ties to even, for |v| < 2^22: 1.5 * 2^23 has a unit of 1 in its last place, so the sum is rounded there. */
HT_INLINE ht_lanes lanes_round(ht_lanes v) { return (v + 0x1.8p23f) - 0x1.8p23f; }

HT_INLINE ht_lanes_int lanes_to_int(ht_lanes v) { return __builtin_convertvector(v, ht_lanes_int); }

/* 1 / v, and 0 where v is 0 */
HT_INLINE ht_lanes lanes_inverse_or_zero(ht_lanes v)
{
    const ht_lanes zero = { 0 }, inverse = 1.0f / v;
    return lanes_select_less(zero, lanes_abs(v), inverse, zero);
}

#endif
