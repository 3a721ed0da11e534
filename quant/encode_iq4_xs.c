#include "formats/block_iq4_xs.h"
#include "quant/encode_rows.h"

static void pack_iq4_xs(void* block, ht_half_pair half, const float* sc, const float* mn, const uint8_t codes[ROW_SUPER])
{
    (void)mn;
    ht_block_iq4_xs* b = block;
    int              low[8], high = 0;
    for (int g = 0; g < 8; g++) {
        const int v = (int)sc[g] + 32;
        low[g] = v & 15;
        high |= v >> 4 << (2 * g);
    }
    b->d        = half.d;
    b->scales_h = (uint16_t)high;
    for (int j = 0; j < 4; j++) { b->scales_l[j] = (uint8_t)(low[2 * j] | low[2 * j + 1] << 4); }
    for (int g = 0; g < 8; g++) {
        for (int j = 0; j < 16; j++) { b->qs[16 * g + j] = (uint8_t)(codes[32 * g + j] | codes[32 * g + 16 + j] << 4); }
    }
}

void HT_ENCODER(iq4_xs)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_k_shape     shape  = { 32, { -127.0f, 113.0f, LEVELS_IQ4 }, -32.0f, 31.0f };
    const ht_scale_range scales = { 100.0f, 4.0f, 14, 1 };
    encode_row_k(x, blocks, n_elems, importance, shape, false, scales, (ht_end_range){ 0 }, sizeof(ht_block_iq4_xs), pack_iq4_xs);
}
