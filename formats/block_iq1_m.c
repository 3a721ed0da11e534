#include "formats/block_iq1_m.h"

void ht_iq1_m_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_iq1_m* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++) {
        int half = 0;
        for (int n = 0; n < 4; n++) { half |= (b->scales[n] >> 12) << (4 * n); }
        const float d = ht_f16_to_f32((uint16_t)half);
        for (int l = 0; l < 32; l++) {
            const int   sc    = b->scales[l / 8] >> (3 * (l / 2 % 4)) & 7;
            const int   qh    = b->qh[l / 2] >> (4 * (l % 2)) & 15;
            const float scale = d * (float)(2 * sc + 1), delta = qh & 8 ? -0.125f : 0.125f;
            const int   index = b->qs[l] | (qh & 7) << 8;
            for (int j = 0; j < 8; j++) { *out++ = scale * ((float)ht_iq1_level(ht_iq1_grid[index], j) + delta); }
        }
    }
}
