/*
 * IQ2_XXS: 256 values in 8 groups of 32, each four runs of 8 from a codebook of 256 magnitudes with 7-bit sign patterns; 2.0625 bits each.
 *
 *     0..1   d
 *     2..65  qs   per group 8 bytes: index[0..3] (a byte per run), then a little-endian u32 = | sc:4 | s3:7 | s2:7 | s1:7 | s0:7 |
 *
 *     x[32 g + 8 l + j] = d * (sc[g] + 1/2) / 4 * ht_iq2_level(ht_iq2_xxs_grid[index[l]], j) * sign(s[l], j)
 */
#ifndef HT_FORMATS_BLOCK_IQ2_XXS_H
#define HT_FORMATS_BLOCK_IQ2_XXS_H

#include "formats/iq_grids.h"

typedef struct HT_PACKED ht_block_iq2_xxs {
    uint16_t d;
    uint8_t  qs[64];
} ht_block_iq2_xxs;
HT_BLOCK_CHECK(iq2_xxs);

#endif
