#include "formats/block_mxfp4.h"

const int8_t ht_fp4_values[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

void ht_mxfp4_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_mxfp4* b = blocks;
    for (int64_t i = 0; i < n_elems; i += 32, b++, out += 32) {
        const float d = ht_e8m0_half_to_f32(b->e);
        for (int j = 0; j < 16; j++) {
            out[j]      = d * (float)ht_fp4_values[b->qs[j] & 15];
            out[j + 16] = d * (float)ht_fp4_values[b->qs[j] >> 4];
        }
    }
}
