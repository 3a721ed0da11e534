/*
 * IQ2_S: 256 values in 16 groups of 16, each two runs of 8 from a codebook of 1024 magnitudes with free signs; 2.5625 bits each.
 *
 *      0..1   d
 *      2..33  qs      low byte of index[l] per run l of 8
 *     34..65  signs   one byte per run, bit j set: value j is negative
 *     66..73  qh      bits 2k, 2k+1 of byte m = bits 8..9 of index[4 m + k]
 *     74..81  scales  byte k = | sc[2k+1] high nibble | sc[2k] low nibble |
 *
 *     x[8 l + j] = d * (sc[l / 2] + 1/2) / 4 * ht_iq2_level(ht_iq2_s_grid[index[l]], j) * (-1)^bit j of signs[l]
 */
#ifndef HT_FORMATS_BLOCK_IQ2_S_H
#define HT_FORMATS_BLOCK_IQ2_S_H

#include "formats/iq_grids.h"

typedef struct HT_PACKED ht_block_iq2_s {
    uint16_t d;
    uint8_t  qs[32];
    uint8_t  signs[32];
    uint8_t  qh[8];
    uint8_t  scales[8];
} ht_block_iq2_s;
HT_BLOCK_CHECK(iq2_s);

#endif
