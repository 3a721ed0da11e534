#include "quant/encode_rows.h"

void HT_ENCODER(iq4_xs)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_k_shape     shape  = { 32, { -127.0f, 113.0f, LEVELS_IQ4 }, -32.0f, 31.0f };
    const ht_scale_range scales = { 100.0f, 4.0f, 14, 1 };
    encode_row_k(x, blocks, n_elems, importance, shape, false, scales, (ht_end_range){ 0 }, sizeof(ht_block_iq4_xs), iq4_xs_pack);
}
