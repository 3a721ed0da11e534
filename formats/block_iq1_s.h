/*
 * IQ1_S: 256 values in 8 groups of 32, each four runs of 8 from a codebook of 2048 ternary patterns, shifted by 1/8; 1.5625 bits each.
 *
 *      0..1   d
 *      2..33  qs   low byte of index[l] per run l of 8
 *     34..49  qh   one u16 per group: | delta sign:1 | sc:3 | bits 8..10 of index[4g+3]:3 | …[4g+2]:3 | …[4g+1]:3 | …[4g]:3 |
 *
 *     x[8 l + j] = d * (2 sc[g] + 1) * (ht_iq1_level(ht_iq1_grid[index[l]], j) + delta)          g = l / 4, delta = -1/8 when the sign bit is set, else 1/8
 */
#ifndef HT_FORMATS_BLOCK_IQ1_S_H
#define HT_FORMATS_BLOCK_IQ1_S_H

#include "formats/iq_grids.h"

typedef struct HT_PACKED ht_block_iq1_s {
    uint16_t d;
    uint8_t  qs[32];
    uint16_t qh[8];
} ht_block_iq1_s;
HT_BLOCK_CHECK(iq1_s);

#endif
