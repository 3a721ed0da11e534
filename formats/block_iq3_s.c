#include "formats/block_iq3_s.h"

void ht_iq3_s_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_iq3_s* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++) {
        const float d = ht_f16_to_f32(b->d);
        for (int g = 0; g < 8; g++) {
            const float scale = d * (float)(2 * (b->scales[g / 2] >> (4 * (g % 2)) & 15) + 1);
            for (int j = 0; j < 32; j++) {
                const int index = b->qs[8 * g + j / 4] | (b->qh[g] >> (j / 4) & 1) << 8;
                const int level = ht_iq3_s_level(ht_iq3_s_grid[index], j % 4);
                *out++ = scale * (float)(b->signs[4 * g + j / 8] >> (j % 8) & 1 ? -level : level);
            }
        }
    }
}
