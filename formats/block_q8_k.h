/*
 * Q8_K: 256 values with group sums, 9.125 bits each. The form that activations take when they meet a type with blocks of 256.
 *
 *       0..3    d       f32
 *       4..259  qs      q[i]
 *     260..291  bsums   int16: bsums[g] = sum of q[16 g .. 16 g + 15]; not needed to decode
 *
 *     x[i] = d * q[i]
 */
#ifndef HT_FORMATS_BLOCK_Q8_K_H
#define HT_FORMATS_BLOCK_Q8_K_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_q8_k {
    float    d;
    int8_t   qs[256];
    int16_t  bsums[16];
} ht_block_q8_k;
HT_BLOCK_CHECK(q8_k);

#endif
