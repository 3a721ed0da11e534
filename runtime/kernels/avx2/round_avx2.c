/* Rounding of activations, 8 values at a time: see activations.h. */
#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>

#include "formats/base/half.h"
#include "runtime/kernels/activations.h"
#include "runtime/kernels/variants.h"

/* max|x| by bits, which order NaN above Inf above finite values; the sign bit is clear, so a signed comparison does. */
static inline float abs_max(const float* x, int n)
{
    __m256i max = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 8) {
        const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i));
        max = _mm256_max_epi32(max, _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF)));
    }
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    m         = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
    m         = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
    return ht_f32_from_bits((uint32_t)_mm_cvtsi128_si32(m));
}

/* 8 codes as 32-bit lanes. Where the product is not in range (NaN, Inf) the code is 0. */
static inline __m256i round8(const float* x, __m256 inverse)
{
    const __m256  v     = _mm256_mul_ps(_mm256_loadu_ps(x), inverse), abs = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
    const __m256  valid = _mm256_cmp_ps(abs, _mm256_set1_ps(127.5f), _CMP_LE_OQ);
    const __m256i codes = _mm256_max_epi32(_mm256_set1_epi32(-127), _mm256_min_epi32(_mm256_set1_epi32(127), _mm256_cvtps_epi32(v)));
    return _mm256_and_si256(codes, _mm256_castps_si256(valid));
}

/* 16 codes stored; returns their sum. */
static inline int round16(const float* x, int8_t* q, __m256 inverse)
{
    const __m256i low = round8(x, inverse), high = round8(x + 8, inverse);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
    _mm_storeu_si128((__m128i*)(void*)q, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
    const __m256i pairs = _mm256_madd_epi16(words, _mm256_set1_epi16(1));
    __m128i       sum   = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    sum                 = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
    sum                 = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1));
    return _mm_cvtsi128_si32(sum);
}

void ht_round_q8_0_avx2(const float* restrict x, void* restrict row, int64_t n_cols)
{
    const ht_act_row a = ht_act_row_q8_0(row, n_cols);
    for (int64_t b = 0; b < n_cols / 32; b++) {
        const float*  v   = x + 32 * b;
        int8_t*       q   = a.q + 32 * b;
        const float   d   = abs_max(v, 32) / 127.0f;
        const __m256  inv = _mm256_set1_ps(d > 0.0f ? 1.0f / d : 0.0f);
        const int     sum = round16(v, q, inv) + round16(v + 16, q + 16, inv);
        a.d[b]            = ht_f16_to_f32(ht_f32_to_f16(d));
        a.sum_d[b]        = a.d[b] * (float)sum;
    }
}

void ht_round_q8_k_avx2(const float* restrict x, void* restrict row, int64_t n_cols)
{
    const ht_act_row a = ht_act_row_q8_k(row, n_cols);
    for (int64_t b = 0; b < n_cols / 256; b++) {
        const float  amax = abs_max(x + 256 * b, 256), inverse = amax == 0.0f ? 0.0f : 127.0f / amax;
        const __m256 inv  = _mm256_set1_ps(inverse);
        for (int g = 0; g < 16; g++) {
            const int64_t at   = 256 * b + 16 * g;
            a.sums[16 * b + g] = (int16_t)round16(x + at, a.q + at, inv);
        }
        a.d[b] = amax == 0.0f ? 0.0f : 1.0f / inverse;
    }
}
#endif
