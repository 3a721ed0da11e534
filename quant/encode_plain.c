/* F32, F16 and BF16: one number after the other, rounded to nearest, ties to even; F16 overflows to Inf as IEEE 754 has it. */
#include <string.h>

#include "quant/encode_rows.h"

void HT_ENCODER(f32)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    (void)importance;
    memcpy(blocks, x, (size_t)n_elems * sizeof *x);
}

void HT_ENCODER(f16)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    (void)importance;
    uint8_t* out = blocks;
    for (int64_t i = 0; i < n_elems; i++) {
        const uint16_t half = ht_f32_to_f16(x[i]);
        memcpy(out + 2 * i, &half, sizeof half);
    }
}

void HT_ENCODER(bf16)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    (void)importance;
    uint8_t* out = blocks;
    for (int64_t i = 0; i < n_elems; i++) {
        const uint16_t half = ht_f32_to_bf16(x[i]);
        memcpy(out + 2 * i, &half, sizeof half);
    }
}
