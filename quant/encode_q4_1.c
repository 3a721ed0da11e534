#include "formats/block_q4_1.h"
#include "quant/encode_rows.h"

static void pack_q4_1(void* block, uint16_t d, uint16_t m, const uint8_t codes[ROW_BLOCK])
{
    ht_block_q4_1* b = block;
    b->d = d;
    b->m = m;
    for (int j = 0; j < 16; j++) { b->qs[j] = (uint8_t)(codes[j] | codes[j + 16] << 4); }
}

void HT_ENCODER(q4_1)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_end_range ends = { -0.03f, 0.03f, 5, 1 };
    encode_row_affine(x, blocks, n_elems, importance, 15.0f, ends, sizeof(ht_block_q4_1), pack_q4_1);
}
