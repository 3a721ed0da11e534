#include "formats/block_iq2_xs.h"

void ht_iq2_xs_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_iq2_xs* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++) {
        const float d = ht_f16_to_f32(b->d);
        for (int l = 0; l < 32; l++) {
            const int     sc    = b->scales[l / 4] >> (4 * (l / 2 % 2)) & 15;
            const float   scale = d * (0.5f + (float)sc) * 0.25f;
            const uint8_t signs = ht_iq_signs(b->qs[l] >> 9);
            for (int j = 0; j < 8; j++) {
                const int level = ht_iq2_level(ht_iq2_xs_grid[b->qs[l] & 511], j);
                *out++ = scale * (float)(signs >> j & 1 ? -level : level);
            }
        }
    }
}
