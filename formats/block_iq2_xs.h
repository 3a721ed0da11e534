/*
 * IQ2_XS: 256 values in 16 groups of 16, each two runs of 8 from a codebook of 512 magnitudes with 7-bit sign patterns; 2.3125 bits each.
 *
 *      0..1   d
 *      2..65  qs      one u16 per run of 8: | s:7 | index:9 |
 *     66..73  scales  byte k = | sc[2k+1] high nibble | sc[2k] low nibble |
 *
 *     x[8 l + j] = d * (sc[l / 2] + 1/2) / 4 * ht_iq2_level(ht_iq2_xs_grid[index[l]], j) * sign(s[l], j)
 */
#ifndef HT_FORMATS_BLOCK_IQ2_XS_H
#define HT_FORMATS_BLOCK_IQ2_XS_H

#include "formats/iq_grids.h"

typedef struct HT_PACKED ht_block_iq2_xs {
    uint16_t d;
    uint16_t qs[32];
    uint8_t  scales[8];
} ht_block_iq2_xs;
HT_BLOCK_CHECK(iq2_xs);

#endif
