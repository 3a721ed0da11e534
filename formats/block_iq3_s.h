/*
 * IQ3_S: 256 values in 8 groups of 32, each eight runs of 4 from a codebook of 512 magnitudes with free signs; 3.4375 bits each.
 *
 *       0..1    d
 *       2..65   qs      low byte of index[l] per run l of 4
 *      66..73   qh      bit k of byte g = bit 8 of index[8 g + k]
 *      74..105  signs   bit b of byte j set: value 8 j + b is negative
 *     106..109  scales  byte k = | sc[2k+1] high nibble | sc[2k] low nibble |
 *
 *     x[4 l + j] = d * (2 sc[l / 8] + 1) * ht_iq3_s_level(ht_iq3_s_grid[index[l]], j) * sign
 */
#ifndef HT_FORMATS_BLOCK_IQ3_S_H
#define HT_FORMATS_BLOCK_IQ3_S_H

#include "formats/iq_grids.h"

typedef struct HT_PACKED ht_block_iq3_s {
    uint16_t d;
    uint8_t  qs[64];
    uint8_t  qh[8];
    uint8_t  signs[32];
    uint8_t  scales[4];
} ht_block_iq3_s;
HT_BLOCK_CHECK(iq3_s);

#endif
