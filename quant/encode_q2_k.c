#include "quant/encode_rows.h"

void HT_ENCODER(q2_k)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_k_shape   shape = { 16, { 0.0f, 3.0f, LEVELS_WHOLE }, 0.0f, 15.0f };
    const ht_end_range ends  = { -0.06f, 0.06f, 6, 1 };
    encode_row_k(x, blocks, n_elems, importance, shape, true, (ht_scale_range){ 0 }, ends, sizeof(ht_block_q2_k), q2_k_pack);
}
