/*
 * IQ1_M: 256 values in 16 groups of 16, each two runs of 8 from IQ1_S's codebook, each run with its own shift; 1.75 bits each.
 *
 *      0..31  qs      low byte of index[l] per run l of 8
 *     32..47  qh      a nibble per run: low nibble of byte k = run 2k, high = run 2k+1: | delta sign:1 | bits 8..10 of the index:3 |
 *     48..55  scales  four u16 w[0..3]: bits 12..15 of w[n] = bits 4n..4n+3 of the half d; bits 3k..3k+2 of w[n] = sc[4 n + k]
 *
 *     x[8 l + j] = d * (2 sc[l / 2] + 1) * (ht_iq1_level(ht_iq1_grid[index[l]], j) + delta)      delta = -1/8 when the run's sign bit is set, else 1/8
 */
#ifndef HT_FORMATS_BLOCK_IQ1_M_H
#define HT_FORMATS_BLOCK_IQ1_M_H

#include "formats/iq_grids.h"

typedef struct HT_PACKED ht_block_iq1_m {
    uint8_t  qs[32];
    uint8_t  qh[16];
    uint16_t scales[4];
} ht_block_iq1_m;
HT_BLOCK_CHECK(iq1_m);

#endif
