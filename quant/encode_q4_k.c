#include "formats/block_q4_k.h"
#include "quant/encode_rows.h"

static void pack_q4_k(void* block, ht_half_pair half, const float* sc, const float* mn, const uint8_t codes[ROW_SUPER])
{
    ht_block_q4_k* b = block;
    uint8_t        sc_bytes[8], mn_bytes[8];
    for (int g = 0; g < 8; g++) {
        sc_bytes[g] = (uint8_t)sc[g];
        mn_bytes[g] = (uint8_t)mn[g];
    }
    b->d    = half.d;
    b->dmin = half.dmin;
    ht_k4_scales_pack(b->scales, sc_bytes, mn_bytes);
    for (int r = 0; r < 4; r++) {
        for (int j = 0; j < 32; j++) { b->qs[32 * r + j] = (uint8_t)(codes[64 * r + j] | codes[64 * r + 32 + j] << 4); }
    }
}

void HT_ENCODER(q4_k)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_k_shape   shape = { 32, { 0.0f, 15.0f, LEVELS_WHOLE }, 0.0f, 63.0f };
    const ht_end_range ends  = { -0.03f, 0.03f, 5, 1 };
    encode_row_k(x, blocks, n_elems, importance, shape, true, (ht_scale_range){ 0 }, ends, sizeof(ht_block_q4_k), pack_q4_k);
}
