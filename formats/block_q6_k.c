#include "formats/block_q6_k.h"

void ht_q6_k_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_q6_k* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++, out += HT_K_ELEMS) {
        const float d = ht_f16_to_f32(b->d);
        for (int g = 0; g < 16; g++) {
            const float    scale = d * (float)b->scales[g];
            const int      run = g / 8, in_run = 16 * (g % 8);
            const uint8_t *ql = b->ql + 64 * run + in_run % 64, *qh = b->qh + 32 * run + in_run % 32;
            const int      shift_low = 4 * (in_run / 64), shift_high = 2 * (in_run / 32);
            for (int j = 0; j < 16; j++) {
                const int q = (ql[j] >> shift_low & 15) | (qh[j] >> shift_high & 3) << 4;
                out[16 * g + j] = scale * (float)(q - 32);
            }
        }
    }
}
