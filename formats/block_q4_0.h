/*
 * Q4_0: 32 values, 4.5 bits each.
 *
 *     0..1   d
 *     2..17  qs    byte j = | q[j+16] high nibble | q[j] low nibble |
 *
 *     x[i] = d * (q[i] - 8)          q in 0..15; d may be negative
 */
#ifndef HT_FORMATS_BLOCK_Q4_0_H
#define HT_FORMATS_BLOCK_Q4_0_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_q4_0 {
    uint16_t d;
    uint8_t  qs[16];
} ht_block_q4_0;
HT_BLOCK_CHECK(q4_0);

#endif
