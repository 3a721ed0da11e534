#include "formats/block_iq4_nl.h"

/* Source: ggml-common.h, kvalues_iq4nl (a part of the format). */
const int8_t ht_iq4_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };

void ht_iq4_nl_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_iq4_nl* b = blocks;
    for (int64_t i = 0; i < n_elems; i += 32, b++, out += 32) {
        const float d = ht_f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            out[j]      = d * (float)ht_iq4_values[b->qs[j] & 15];
            out[j + 16] = d * (float)ht_iq4_values[b->qs[j] >> 4];
        }
    }
}
