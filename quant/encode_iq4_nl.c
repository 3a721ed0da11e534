#include "quant/encode_rows.h"

void HT_ENCODER(iq4_nl)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_levels      levels = { -127.0f, 113.0f, LEVELS_IQ4 };
    const ht_scale_range range  = { 100.0f, 4.0f, 14, 1 };
    encode_row_symmetric(x, blocks, n_elems, importance, PLAIN_EVEN, levels, range, sizeof(ht_block_iq4_nl), iq4_nl_pack);
}
