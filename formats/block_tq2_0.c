#include "formats/block_tq2_0.h"

void ht_tq2_0_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_tq2_0* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++) {
        const float d = ht_f16_to_f32(b->d);
        for (int g = 0; g < 8; g++) {
            const uint8_t* qs = b->qs + 32 * (g / 4);
            for (int j = 0; j < 32; j++) { *out++ = d * (float)((qs[j] >> (2 * (g % 4)) & 3) - 1); }
        }
    }
}
