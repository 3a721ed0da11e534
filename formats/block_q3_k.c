#include "formats/block_q3_k.h"

void ht_q3_k_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_q3_k* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++, out += HT_K_ELEMS) {
        const float d = ht_f16_to_f32(b->d);
        int8_t      sc[16];
        ht_k3_scales_unpack(b->scales, sc);
        for (int g = 0; g < 16; g++) {
            const float    scale = d * (float)sc[g];
            const uint8_t *qs = b->qs + 32 * (g / 8) + 16 * (g % 2), *hmask = b->hmask + 16 * (g % 2);
            const int      shift = 2 * (g / 2 % 4), high_bit = g / 2;
            for (int j = 0; j < 16; j++) {
                const int q = (qs[j] >> shift & 3) | (hmask[j] >> high_bit & 1) << 2;
                out[16 * g + j] = scale * (float)(q - 4);
            }
        }
    }
}
