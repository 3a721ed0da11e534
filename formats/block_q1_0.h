/*
 * Q1_0: 128 signs, 1.125 bits each.
 *
 *     0..1   d
 *     2..17  qs   bit b of byte j = s[8 j + b]
 *
 *     x[i] = s[i] ? d : -d
 */
#ifndef HT_FORMATS_BLOCK_Q1_0_H
#define HT_FORMATS_BLOCK_Q1_0_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_q1_0 {
    uint16_t d;
    uint8_t  qs[16];
} ht_block_q1_0;
HT_BLOCK_CHECK(q1_0);

#endif
