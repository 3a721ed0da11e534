#include "formats/block_q8_k.h"

void ht_q8_k_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_q8_k* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++, out += HT_K_ELEMS) {
        for (int j = 0; j < HT_K_ELEMS; j++) { out[j] = b->d * (float)b->qs[j]; }
    }
}
