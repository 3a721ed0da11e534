#include "formats/block_q2_0.h"

void ht_q2_0_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_q2_0* b = blocks;
    for (int64_t i = 0; i < n_elems; i += 64, b++, out += 64) {
        const float d = ht_f16_to_f32(b->d);
        for (int j = 0; j < 64; j++) { out[j] = d * (float)((b->qs[j / 4] >> (2 * (j % 4)) & 3) - 1); }
    }
}
