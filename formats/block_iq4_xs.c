#include "formats/block_iq4_xs.h"

void ht_iq4_xs_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_iq4_xs* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++, out += HT_K_ELEMS) {
        const float d = ht_f16_to_f32(b->d);
        for (int g = 0; g < 8; g++) {
            const int      low = b->scales_l[g / 2] >> (4 * (g % 2)) & 15, high = b->scales_h >> (2 * g) & 3;
            const float    scale = d * (float)((low | high << 4) - 32);
            const uint8_t* qs    = b->qs + 16 * g;
            for (int j = 0; j < 16; j++) {
                out[32 * g + j]      = scale * (float)ht_iq4_values[qs[j] & 15];
                out[32 * g + j + 16] = scale * (float)ht_iq4_values[qs[j] >> 4];
            }
        }
    }
}
