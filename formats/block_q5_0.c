#include "formats/block_q5_0.h"

#include "formats/base/bytes.h"

void ht_q5_0_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_q5_0* b = blocks;
    for (int64_t i = 0; i < n_elems; i += 32, b++, out += 32) {
        const float    d    = ht_f16_to_f32(b->d);
        const uint32_t high = ht_load_u32le(b->qh);
        for (int j = 0; j < 16; j++) {
            const int low_half = (int)((high >> j & 1) << 4), high_half = (int)((high >> (j + 16) & 1) << 4);
            out[j]      = d * (float)(((b->qs[j] & 15) | low_half) - 16);
            out[j + 16] = d * (float)(((b->qs[j] >> 4) | high_half) - 16);
        }
    }
}
