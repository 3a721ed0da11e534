#include "quant/encode_rows.h"

void HT_ENCODER(q6_k)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_k_shape     shape  = { 16, { -32.0f, 31.0f, LEVELS_WHOLE }, -128.0f, 127.0f };
    const ht_scale_range scales = { 30.0f, 0.5f, 10, 1 };
    encode_row_k(x, blocks, n_elems, importance, shape, false, scales, (ht_end_range){ 0 }, sizeof(ht_block_q6_k), q6_k_pack);
}
