/* Rounding of activations, the definition: see activations.h. */
#include <math.h>

#include "formats/base/half.h"
#include "runtime/kernels/activations.h"
#include "runtime/kernels/variants.h"

/* max|x|, by bits: they order NaN above Inf above finite values, so nothing non-finite gets lost. */
static float abs_max(const float* x, int n)
{
    uint32_t max = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t bits = ht_f32_to_bits(x[i]) & 0x7FFFFFFFu;
        if (bits > max) { max = bits; }
    }
    return ht_f32_from_bits(max);
}

/* q[i] = x[i] * inverse to nearest even. `inverse` is not finite or the values are not: zeros (their scale makes products NaN). */
static int round_group(const float* x, int8_t* q, int n, float inverse)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        const float v = x[i] * inverse;
        q[i] = fabsf(v) <= 127.5f ? (int8_t)fmaxf(-127.0f, fminf(127.0f, rintf(v))) : 0;
        sum += q[i];
    }
    return sum;
}

void ht_round_q8_0_scalar(const float* restrict x, void* restrict row, int64_t n_cols)
{
    const ht_act_row a = ht_act_row_q8_0(row, n_cols);
    for (int64_t b = 0; b < n_cols / 32; b++) {
        const float d   = abs_max(x + 32 * b, 32) / 127.0f;
        const int   sum = round_group(x + 32 * b, a.q + 32 * b, 32, d > 0.0f ? 1.0f / d : 0.0f);
        a.d[b]          = ht_f16_to_f32(ht_f32_to_f16(d));
        a.sum_d[b]      = a.d[b] * (float)sum;
    }
}

void ht_round_q8_k_scalar(const float* restrict x, void* restrict row, int64_t n_cols)
{
    const ht_act_row a = ht_act_row_q8_k(row, n_cols);
    for (int64_t b = 0; b < n_cols / 256; b++) {
        const float max = abs_max(x + 256 * b, 256), inverse = max == 0.0f ? 0.0f : 127.0f / max;
        for (int g = 0; g < 16; g++) {
            const int64_t at    = 256 * b + 16 * g;
            a.sums[16 * b + g] = (int16_t)round_group(x + at, a.q + at, 16, inverse);
        }
        a.d[b] = max == 0.0f ? 0.0f : 1.0f / inverse;
    }
}
