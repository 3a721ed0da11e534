#include "quant/encode_rows.h"

void HT_ENCODER(q5_1)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_end_range ends = { -0.02f, 0.02f, 4, 1 };
    encode_row_affine(x, blocks, n_elems, importance, 31.0f, ends, sizeof(ht_block_q5_1), q5_1_pack);
}
