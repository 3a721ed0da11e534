#include "formats/block_nvfp4.h"

/* Half of an unsigned E4M3: the sign bit does not count, and the NaN code 0x7F reads as zero, as in ggml. */
static float scale_half(uint8_t code)
{
    return code == 0x7F ? 0.0f : 0.5f * ht_f8_e4m3_to_f32(code & 0x7F);
}

void ht_nvfp4_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_nvfp4* b = blocks;
    for (int64_t i = 0; i < n_elems; i += 64, b++, out += 64) {
        for (int g = 0; g < 4; g++) {
            const float    scale = scale_half(b->d[g]);
            const uint8_t* qs    = b->qs + 8 * g;
            for (int j = 0; j < 8; j++) {
                out[16 * g + j]     = scale * (float)ht_fp4_values[qs[j] & 15];
                out[16 * g + j + 8] = scale * (float)ht_fp4_values[qs[j] >> 4];
            }
        }
    }
}
