#include "quant/encode_rows.h"

void HT_ENCODER(q4_k)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_k_shape   shape = { 32, { 0.0f, 15.0f, LEVELS_WHOLE }, 0.0f, 63.0f };
    const ht_end_range ends  = { -0.03f, 0.03f, 5, 1 };
    encode_row_k(x, blocks, n_elems, importance, shape, true, (ht_scale_range){ 0 }, ends, sizeof(ht_block_q4_k), q4_k_pack);
}
