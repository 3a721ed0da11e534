#include "quant/encode_rows.h"

void HT_ENCODER(q4_1)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_end_range ends = { -0.03f, 0.03f, 5, 1 };
    encode_row_affine(x, blocks, n_elems, importance, 15.0f, ends, sizeof(ht_block_q4_1), q4_1_pack);
}
