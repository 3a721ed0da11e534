/*
 * IQ3_XXS: 256 values in 8 groups of 32, each eight runs of 4 from a codebook of 256 magnitudes with 7-bit sign patterns per 8;
 * 3.0625 bits each.
 *
 *      0..1   d
 *      2..65  qs     index[l] per run l of 4
 *     66..97  signs  per group a little-endian u32 = | sc:4 | s3:7 | s2:7 | s1:7 | s0:7 |
 *
 *     x[4 l + j] = d * (sc[l / 8] + 1/2) / 2 * ht_iq3_xxs_level(ht_iq3_xxs_grid[index[l]], j) * sign(s of the 8, place among the 8)
 */
#ifndef HT_FORMATS_BLOCK_IQ3_XXS_H
#define HT_FORMATS_BLOCK_IQ3_XXS_H

#include "formats/iq_grids.h"

typedef struct HT_PACKED ht_block_iq3_xxs {
    uint16_t d;
    uint8_t  qs[64];
    uint8_t  signs[32];
} ht_block_iq3_xxs;
HT_BLOCK_CHECK(iq3_xxs);

#endif
