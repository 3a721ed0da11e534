/*
 * Q5_1: 32 values, 6 bits each.
 *
 *     0..1   d
 *     2..3   m
 *     4..7   qh    one little-endian u32: bit i = bit 4 of q[i]
 *     8..23  qs    byte j = | q[j+16] & 15 high nibble | q[j] & 15 low nibble |
 *
 *     x[i] = d * q[i] + m            q in 0..31
 */
#ifndef HT_FORMATS_BLOCK_Q5_1_H
#define HT_FORMATS_BLOCK_Q5_1_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_q5_1 {
    uint16_t d;
    uint16_t m;
    uint8_t  qh[4];
    uint8_t  qs[16];
} ht_block_q5_1;
HT_BLOCK_CHECK(q5_1);

#endif
