/*
 * Q8_0: 32 values, 8.5 bits each. Also the form that activations take when they meet a type with blocks of 32.
 *
 *     0..1   d
 *     2..33  qs    q[i]
 *
 *     x[i] = d * q[i]
 */
#ifndef HT_FORMATS_BLOCK_Q8_0_H
#define HT_FORMATS_BLOCK_Q8_0_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_q8_0 {
    uint16_t d;
    int8_t   qs[32];
} ht_block_q8_0;
HT_BLOCK_CHECK(q8_0);

#endif
