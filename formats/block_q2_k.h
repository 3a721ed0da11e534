/*
 * Q2_K: 256 values in 16 groups of 16, 2.625 bits each.
 *
 *      0..15  scales  byte g = | mn[g] high nibble | sc[g] low nibble |
 *     16..79  qs      two runs of 32 bytes, one per 128 values; bits 2k, 2k+1 of byte j of run r = q[128 r + 32 k + j]
 *     80..81  d
 *     82..83  dmin
 *
 *     x[i] = d * sc[g] * q[i] - dmin * mn[g]          g = i / 16, q in 0..3
 */
#ifndef HT_FORMATS_BLOCK_Q2_K_H
#define HT_FORMATS_BLOCK_Q2_K_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_q2_k {
    uint8_t  scales[16];
    uint8_t  qs[64];
    uint16_t d;
    uint16_t dmin;
} ht_block_q2_k;
HT_BLOCK_CHECK(q2_k);

#endif
