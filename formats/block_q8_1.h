/*
 * Q8_1: 32 values with their sum, 9 bits each. An activation form of llama.cpp; not found in model files.
 *
 *     0..1   d
 *     2..3   s     d * (sum of q), a half; not needed to decode
 *     4..35  qs    q[i]
 *
 *     x[i] = d * q[i]
 */
#ifndef HT_FORMATS_BLOCK_Q8_1_H
#define HT_FORMATS_BLOCK_Q8_1_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_q8_1 {
    uint16_t d;
    uint16_t s;
    int8_t   qs[32];
} ht_block_q8_1;
HT_BLOCK_CHECK(q8_1);

#endif
