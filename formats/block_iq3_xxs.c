#include "formats/block_iq3_xxs.h"

#include "formats/base/bytes.h"

void ht_iq3_xxs_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_iq3_xxs* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++) {
        const float d = ht_f16_to_f32(b->d);
        for (int g = 0; g < 8; g++) {
            const uint32_t patterns = ht_load_u32le(b->signs + 4 * g);
            const float    scale    = d * (0.5f + (float)(patterns >> 28)) * 0.5f;
            for (int j = 0; j < 32; j++) {
                const uint8_t signs = ht_iq_signs(patterns >> (7 * (j / 8)));
                const int     level = ht_iq3_xxs_level(ht_iq3_xxs_grid[b->qs[8 * g + j / 4]], j % 4);
                *out++ = scale * (float)(signs >> (j % 8) & 1 ? -level : level);
            }
        }
    }
}
