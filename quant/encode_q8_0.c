/*
 * Q8_0: no search. d = absmax / 127 rounded to half first, then the elements rounded under that d, ties to even. Importance does not matter:
 * at 8 bits every element is within half a step of d, and clipping some to refine the others gains nothing worth the time.
 */
#include "formats/block_q8_0.h"
#include "quant/encode_rows.h"

void HT_ENCODER(q8_0)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    (void)importance;
    ht_block_q8_0* b = blocks;
    for (int64_t i = 0; i < n_elems; i += ROW_BLOCK, b++) {
        int32_t max_bits = 0; /* magnitudes of floats are ordered as their bits are */
        for (int j = 0; j < ROW_BLOCK; j++) {
            const int32_t bits = (int32_t)(ht_f32_to_bits(x[i + j]) & 0x7FFFFFFFu);
            max_bits           = bits > max_bits ? bits : max_bits;
        }
        b->d = scale_to_f16(ht_f32_from_bits((uint32_t)max_bits) / 127.0f);
        const float d = ht_f16_to_f32(b->d), inverse = d > 0.0f ? 1.0f / d : 0.0f;
        for (int j = 0; j < ROW_BLOCK; j++) {
            float v = x[i + j] * inverse;
            v = v < -127.0f ? -127.0f : v;
            v = v > 127.0f ? 127.0f : v;
            b->qs[j] = (int8_t)((v + 0x1.8p23f) - 0x1.8p23f);
        }
    }
}
