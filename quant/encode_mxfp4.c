/*
 * MXFP4: the scale is a power of two, so there is little to search. Of the exponents that put the largest magnitude into the top binade of
 * E2M1 (4 … 8, of which 6 is the largest level), one below (more clipping, finer levels) and one above, the one with the least error is kept.
 */
#include "formats/block_mxfp4.h"
#include "quant/encode_rows.h"

/* Exponent byte with 2^(e - 127) = 2^(floor(log2 max) - 2), before clamping to what a byte holds. */
static int mxfp4_exponent(const float* x)
{
    int32_t max_bits = 0;
    for (int j = 0; j < ROW_BLOCK; j++) {
        const int32_t bits = (int32_t)(ht_f32_to_bits(x[j]) & 0x7FFFFFFFu);
        max_bits           = bits > max_bits ? bits : max_bits;
    }
    return (max_bits >> 23) - 2;
}

void HT_ENCODER(mxfp4)(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance)
{
    const ht_levels levels             = { -12.0f, 12.0f, LEVELS_FP4 };
    const float     no_min[TILE_GROUPS] = { 0 };
    ht_block_mxfp4* b                  = blocks;
    for (int64_t i = 0; i < n_elems; i += TILE_GROUPS * ROW_BLOCK) {
        const int64_t n_left = (n_elems - i) / ROW_BLOCK;
        const int     n      = n_left < TILE_GROUPS ? (int)n_left : TILE_GROUPS;
        ht_tile       t;
        float         scale[3][TILE_GROUPS] = { { 0 } }, best[TILE_GROUPS];
        int           e[3][TILE_GROUPS]     = { { 0 } };
        float         error[3][TILE_GROUPS];
        uint8_t       codes[TILE_GROUPS * ROW_BLOCK];
        tile_load(&t, ROW_BLOCK, x + i, importance ? importance + i : NULL, PLAIN_EVEN, n);
        for (int g = 0; g < n; g++) {
            const int middle = mxfp4_exponent(x + i + g * ROW_BLOCK);
            for (int k = 0; k < 3; k++) {
                const int wanted = middle + k - 1;
                e[k][g]          = wanted < 0 ? 0 : wanted > 254 ? 254 : wanted;
                scale[k][g]      = ht_e8m0_half_to_f32((uint8_t)e[k][g]) / t.x_max[g];
            }
        }
        for (int k = 0; k < 3; k++) { tile_errors(&t, ROW_BLOCK, levels, scale[k], error[k]); }
        for (int g = 0; g < n; g++) {
            int k = 1;
            if (error[0][g] < error[k][g]) { k = 0; }
            if (error[2][g] < error[k][g]) { k = 2; }
            best[g]  = scale[k][g];
            b[g].e   = (uint8_t)e[k][g];
        }
        for (int g = n; g < TILE_GROUPS; g++) { best[g] = 0.0f; }
        tile_codes(&t, ROW_BLOCK, levels, best, no_min, codes);
        for (int g = 0; g < n; g++, b++) { nibbles_pack(b->qs, codes + g * ROW_BLOCK, 16); }
    }
}
