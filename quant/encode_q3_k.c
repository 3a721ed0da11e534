#include "formats/block_q3_k.h"
#include "quant/encode_rows.h"

static void pack_q3_k(void* block, ht_half_pair half, const float* sc, const float* mn, const uint8_t codes[ROW_SUPER])
{
    (void)mn;
    ht_block_q3_k* b = block;
    int8_t         sc_bytes[16];
    for (int g = 0; g < 16; g++) { sc_bytes[g] = (int8_t)sc[g]; }
    b->d = half.d;
    ht_k3_scales_pack(b->scales, sc_bytes);
    for (int r = 0; r < 2; r++) {
        const uint8_t* c = codes + 128 * r;
        for (int j = 0; j < 32; j++) {
            b->qs[32 * r + j] = (uint8_t)((c[j] & 3) | (c[32 + j] & 3) << 2 | (c[64 + j] & 3) << 4 | (c[96 + j] & 3) << 6);
        }
    }
    for (int j = 0; j < 32; j++) {
        int bits = 0;
        for (int m = 0; m < 8; m++) { bits |= codes[32 * m + j] >> 2 << m; }
        b->hmask[j] = (uint8_t)bits;
    }
}

void HT_ENCODER(q3_k)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_k_shape     shape  = { 16, { -4.0f, 3.0f, LEVELS_WHOLE }, -32.0f, 31.0f };
    const ht_scale_range scales = { 2.6f, 0.2f, 12, 1 };
    encode_row_k(x, blocks, n_elems, importance, shape, false, scales, (ht_end_range){ 0 }, sizeof(ht_block_q3_k), pack_q3_k);
}
