#include "formats/block_q1_0.h"

void ht_q1_0_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_q1_0* b = blocks;
    for (int64_t i = 0; i < n_elems; i += 128, b++, out += 128) {
        const float d = ht_f16_to_f32(b->d);
        for (int j = 0; j < 128; j++) { out[j] = b->qs[j / 8] >> (j % 8) & 1 ? d : -d; }
    }
}
