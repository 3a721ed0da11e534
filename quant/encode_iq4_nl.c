#include "formats/block_iq4_nl.h"
#include "quant/encode_rows.h"

static void pack_iq4_nl(void* block, uint16_t d, const uint8_t codes[ROW_BLOCK])
{
    ht_block_iq4_nl* b = block;
    b->d = d;
    for (int j = 0; j < 16; j++) { b->qs[j] = (uint8_t)(codes[j] | codes[j + 16] << 4); }
}

void HT_ENCODER(iq4_nl)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_levels      levels = { -127.0f, 113.0f, LEVELS_IQ4 };
    const ht_scale_range range  = { 100.0f, 4.0f, 14, 1 };
    encode_row_symmetric(x, blocks, n_elems, importance, PLAIN_EVEN, levels, range, sizeof(ht_block_iq4_nl), pack_iq4_nl);
}
