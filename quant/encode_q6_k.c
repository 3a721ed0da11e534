#include "formats/block_q6_k.h"
#include "quant/encode_rows.h"

static void pack_q6_k(void* block, ht_half_pair half, const float* sc, const float* mn, const uint8_t codes[ROW_SUPER])
{
    (void)mn;
    ht_block_q6_k* b = block;
    b->d = half.d;
    for (int g = 0; g < 16; g++) { b->scales[g] = (int8_t)sc[g]; }
    for (int r = 0; r < 2; r++) {
        const uint8_t* c = codes + 128 * r;
        for (int j = 0; j < 64; j++) { b->ql[64 * r + j] = (uint8_t)((c[j] & 15) | (c[64 + j] & 15) << 4); }
        for (int j = 0; j < 32; j++) {
            b->qh[32 * r + j] = (uint8_t)(c[j] >> 4 | c[32 + j] >> 4 << 2 | c[64 + j] >> 4 << 4 | c[96 + j] >> 4 << 6);
        }
    }
}

void HT_ENCODER(q6_k)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_k_shape     shape  = { 16, { -32.0f, 31.0f, LEVELS_WHOLE }, -128.0f, 127.0f };
    const ht_scale_range scales = { 30.0f, 0.5f, 10, 1 };
    encode_row_k(x, blocks, n_elems, importance, shape, false, scales, (ht_end_range){ 0 }, sizeof(ht_block_q6_k), pack_q6_k);
}
