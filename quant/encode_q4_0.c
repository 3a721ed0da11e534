#include "quant/encode_rows.h"

void HT_ENCODER(q4_0)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_levels      levels = { -8.0f, 7.0f, LEVELS_WHOLE };
    const ht_scale_range range  = { 6.5f, 0.25f, 12, 1 };
    encode_row_symmetric(x, blocks, n_elems, importance, PLAIN_LARGE, levels, range, sizeof(ht_block_q4_0), q4_0_pack);
}
