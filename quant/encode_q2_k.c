#include "formats/block_q2_k.h"
#include "quant/encode_rows.h"

static void pack_q2_k(void* block, ht_half_pair half, const float* sc, const float* mn, const uint8_t codes[ROW_SUPER])
{
    ht_block_q2_k* b = block;
    b->d    = half.d;
    b->dmin = half.dmin;
    for (int g = 0; g < 16; g++) { b->scales[g] = (uint8_t)((int)sc[g] | (int)mn[g] << 4); }
    for (int r = 0; r < 2; r++) {
        const uint8_t* c = codes + 128 * r;
        for (int j = 0; j < 32; j++) { b->qs[32 * r + j] = (uint8_t)(c[j] | c[32 + j] << 2 | c[64 + j] << 4 | c[96 + j] << 6); }
    }
}

void HT_ENCODER(q2_k)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_k_shape   shape = { 16, { 0.0f, 3.0f, LEVELS_WHOLE }, 0.0f, 15.0f };
    const ht_end_range ends  = { -0.06f, 0.06f, 6, 1 };
    encode_row_k(x, blocks, n_elems, importance, shape, true, (ht_scale_range){ 0 }, ends, sizeof(ht_block_q2_k), pack_q2_k);
}
