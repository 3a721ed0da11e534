#include "formats/block_q4_0.h"

void ht_q4_0_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_q4_0* b = blocks;
    for (int64_t i = 0; i < n_elems; i += 32, b++, out += 32) {
        const float d = ht_f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            out[j]      = d * (float)((b->qs[j] & 15) - 8);
            out[j + 16] = d * (float)((b->qs[j] >> 4) - 8);
        }
    }
}
