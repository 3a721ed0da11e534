#include "quant/encode_rows.h"

void HT_ENCODER(q3_k)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_k_shape     shape  = { 16, { -4.0f, 3.0f, LEVELS_WHOLE }, -32.0f, 31.0f };
    const ht_scale_range scales = { 2.6f, 0.2f, 12, 1 };
    encode_row_k(x, blocks, n_elems, importance, shape, false, scales, (ht_end_range){ 0 }, sizeof(ht_block_q3_k), q3_k_pack);
}
