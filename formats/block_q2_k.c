#include "formats/block_q2_k.h"

void ht_q2_k_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_q2_k* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++, out += HT_K_ELEMS) {
        const float d = ht_f16_to_f32(b->d), dmin = ht_f16_to_f32(b->dmin);
        for (int g = 0; g < 16; g++) {
            const float    scale = d * (float)(b->scales[g] & 15), min = dmin * (float)(b->scales[g] >> 4);
            const uint8_t* qs    = b->qs + 32 * (g / 8) + 16 * (g % 2);
            const int      shift = 2 * (g / 2 % 4);
            for (int j = 0; j < 16; j++) { out[16 * g + j] = scale * (float)(qs[j] >> shift & 3) - min; }
        }
    }
}
