#include "formats/block_iq1_s.h"

void ht_iq1_s_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_iq1_s* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++) {
        const float d = ht_f16_to_f32(b->d);
        for (int l = 0; l < 32; l++) {
            const int   qh    = b->qh[l / 4];
            const float scale = d * (float)(2 * (qh >> 12 & 7) + 1), delta = qh >> 15 ? -0.125f : 0.125f;
            const int   index = b->qs[l] | (qh >> (3 * (l % 4)) & 7) << 8;
            for (int j = 0; j < 8; j++) { *out++ = scale * ((float)ht_iq1_level(ht_iq1_grid[index], j) + delta); }
        }
    }
}
