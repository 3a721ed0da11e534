/*
 * Q2_0: 64 values of four levels, 2.25 bits each.
 *
 *     0..1   d
 *     2..17  qs   bits 2b, 2b+1 of byte j = q[4 j + b]
 *
 *     x[i] = d * (q[i] - 1)          q in 0..3
 */
#ifndef HT_FORMATS_BLOCK_Q2_0_H
#define HT_FORMATS_BLOCK_Q2_0_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_q2_0 {
    uint16_t d;
    uint8_t  qs[16];
} ht_block_q2_0;
HT_BLOCK_CHECK(q2_0);

#endif
