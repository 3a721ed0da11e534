#include "formats/block_q5_1.h"
#include "quant/encode_rows.h"

static void pack_q5_1(void* block, uint16_t d, uint16_t m, const uint8_t codes[ROW_BLOCK])
{
    ht_block_q5_1* b = block;
    uint32_t       high = 0;
    b->d = d;
    b->m = m;
    for (int j = 0; j < 16; j++) { b->qs[j] = (uint8_t)((codes[j] & 15) | (codes[j + 16] & 15) << 4); }
    for (int i = 0; i < ROW_BLOCK; i++) { high |= (uint32_t)(codes[i] >> 4) << i; }
    for (int k = 0; k < 4; k++) { b->qh[k] = (uint8_t)(high >> (8 * k)); }
}

void HT_ENCODER(q5_1)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_end_range ends = { -0.02f, 0.02f, 4, 1 };
    encode_row_affine(x, blocks, n_elems, importance, 31.0f, ends, sizeof(ht_block_q5_1), pack_q5_1);
}
