#include "formats/block_iq2_xxs.h"

#include "formats/base/bytes.h"

void ht_iq2_xxs_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_iq2_xxs* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++) {
        const float d = ht_f16_to_f32(b->d);
        for (int g = 0; g < 8; g++) {
            const uint8_t* index    = b->qs + 8 * g;
            const uint32_t patterns = ht_load_u32le(index + 4);
            const float    scale    = d * (0.5f + (float)(patterns >> 28)) * 0.25f;
            for (int l = 0; l < 4; l++) {
                const uint8_t signs = ht_iq_signs(patterns >> (7 * l));
                for (int j = 0; j < 8; j++) {
                    const int level = ht_iq2_level(ht_iq2_xxs_grid[index[l]], j);
                    *out++ = scale * (float)(signs >> j & 1 ? -level : level);
                }
            }
        }
    }
}
