/*
 * Q5_0: 32 values, 5.5 bits each.
 *
 *     0..1   d
 *     2..5   qh    one little-endian u32: bit i = bit 4 of q[i]
 *     6..21  qs    byte j = | q[j+16] & 15 high nibble | q[j] & 15 low nibble |
 *
 *     x[i] = d * (q[i] - 16)         q in 0..31; d may be negative
 */
#ifndef HT_FORMATS_BLOCK_Q5_0_H
#define HT_FORMATS_BLOCK_Q5_0_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_q5_0 {
    uint16_t d;
    uint8_t  qh[4];
    uint8_t  qs[16];
} ht_block_q5_0;
HT_BLOCK_CHECK(q5_0);

#endif
