#include "formats/block_q5_0.h"
#include "quant/encode_rows.h"

static void pack_q5_0(void* block, uint16_t d, const uint8_t codes[ROW_BLOCK])
{
    ht_block_q5_0* b = block;
    uint32_t       high = 0;
    b->d = d;
    for (int j = 0; j < 16; j++) { b->qs[j] = (uint8_t)((codes[j] & 15) | (codes[j + 16] & 15) << 4); }
    for (int i = 0; i < ROW_BLOCK; i++) { high |= (uint32_t)(codes[i] >> 4) << i; }
    for (int k = 0; k < 4; k++) { b->qh[k] = (uint8_t)(high >> (8 * k)); }
}

void HT_ENCODER(q5_0)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_levels      levels = { -16.0f, 15.0f, LEVELS_WHOLE };
    const ht_scale_range range  = { 14.0f, 0.4f, 10, 1 };
    encode_row_symmetric(x, blocks, n_elems, importance, levels, range, sizeof(ht_block_q5_0), pack_q5_0);
}
