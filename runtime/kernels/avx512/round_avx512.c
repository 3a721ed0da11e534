/* Rounding of activations, 16 values at a time: see activations.h. */
#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>

#include "formats/base/half.h"
#include "runtime/kernels/activations.h"
#include "runtime/kernels/variants.h"

static inline __m512i magnitude_bits(const float* x)
{
    return _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(x)), _mm512_set1_epi32(0x7FFFFFFF));
}

/* 16 codes stored; returns their sums in lanes. Where the product is not in range (NaN, Inf) the code is 0. */
static inline __m512i round16(const float* x, int8_t* q, __m512 inverse)
{
    const __m512    v     = _mm512_mul_ps(_mm512_loadu_ps(x), inverse);
    const __mmask16 valid = _mm512_cmp_ps_mask(_mm512_abs_ps(v), _mm512_set1_ps(127.5f), _CMP_LE_OQ);
    const __m512i   codes = _mm512_maskz_max_epi32(valid, _mm512_set1_epi32(-127),
                                                   _mm512_min_epi32(_mm512_set1_epi32(127), _mm512_cvtps_epi32(v)));
    _mm_storeu_si128((__m128i*)(void*)q, _mm512_cvtepi32_epi8(codes));
    return codes;
}

void ht_round_q8_0_avx512(const float* restrict x, void* restrict row, int64_t n_cols)
{
    const ht_act_row a = ht_act_row_q8_0(row, n_cols);
    for (int64_t b = 0; b < n_cols / 32; b++) {
        const float* v    = x + 32 * b;
        int8_t*      q    = a.q + 32 * b;
        const __m512i max = _mm512_max_epu32(magnitude_bits(v), magnitude_bits(v + 16));
        const float   d   = ht_f32_from_bits(_mm512_reduce_max_epu32(max)) / 127.0f;
        const __m512  inv = _mm512_set1_ps(d > 0.0f ? 1.0f / d : 0.0f);
        const int     sum = _mm512_reduce_add_epi32(_mm512_add_epi32(round16(v, q, inv), round16(v + 16, q + 16, inv)));
        a.d[b]            = ht_f16_to_f32(ht_f32_to_f16(d));
        a.sum_d[b]        = a.d[b] * (float)sum;
    }
}

void ht_round_q8_k_avx512(const float* restrict x, void* restrict row, int64_t n_cols)
{
    const ht_act_row a = ht_act_row_q8_k(row, n_cols);
    for (int64_t b = 0; b < n_cols / 256; b++) {
        __m512i max = _mm512_setzero_si512();
        for (int g = 0; g < 16; g++) { max = _mm512_max_epu32(max, magnitude_bits(x + 256 * b + 16 * g)); }
        const float  amax = ht_f32_from_bits(_mm512_reduce_max_epu32(max)), inverse = amax == 0.0f ? 0.0f : 127.0f / amax;
        const __m512 inv  = _mm512_set1_ps(inverse);
        for (int g = 0; g < 16; g++) {
            const int64_t at   = 256 * b + 16 * g;
            a.sums[16 * b + g] = (int16_t)_mm512_reduce_add_epi32(round16(x + at, a.q + at, inv));
        }
        a.d[b] = amax == 0.0f ? 0.0f : 1.0f / inverse;
    }
}
#endif
