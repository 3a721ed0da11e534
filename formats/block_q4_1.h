/*
 * Q4_1: 32 values, 5 bits each.
 *
 *     0..1   d
 *     2..3   m
 *     4..19  qs    byte j = | q[j+16] high nibble | q[j] low nibble |
 *
 *     x[i] = d * q[i] + m            q in 0..15
 */
#ifndef HT_FORMATS_BLOCK_Q4_1_H
#define HT_FORMATS_BLOCK_Q4_1_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_q4_1 {
    uint16_t d;
    uint16_t m;
    uint8_t  qs[16];
} ht_block_q4_1;
HT_BLOCK_CHECK(q4_1);

#endif
