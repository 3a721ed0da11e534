#include "formats/block_q5_k.h"

void ht_q5_k_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_q5_k* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++, out += HT_K_ELEMS) {
        const float d = ht_f16_to_f32(b->d), dmin = ht_f16_to_f32(b->dmin);
        uint8_t     sc[8], mn[8];
        ht_k4_scales_unpack(b->scales, sc, mn);
        for (int g = 0; g < 8; g++) {
            const float    scale = d * (float)sc[g], min = dmin * (float)mn[g];
            const uint8_t* qs    = b->qs + 32 * (g / 2);
            const int      shift = 4 * (g % 2);
            for (int j = 0; j < 32; j++) {
                const int q = (qs[j] >> shift & 15) | (b->qh[j] >> g & 1) << 4;
                out[32 * g + j] = scale * (float)q - min;
            }
        }
    }
}
