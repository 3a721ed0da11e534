/*
 * TQ1_0: 256 ternary values, five per byte, 1.6875 bits each.
 *
 *      0..31  qs[0..31]   five digits each: digit n of byte j = t[32 n + j]
 *     32..47  qs[32..47]  five digits each: digit n of byte 32 + j = t[160 + 16 n + j]
 *     48..51  qh          four digits each: digit n of byte j = t[240 + 4 n + j]
 *     52..53  d
 *
 *     x[i] = d * (t[i] - 1)          t in 0..2
 *
 * A byte is the fraction 0.t0t1t2t3t4 in base three, as ceil(256 * fraction): multiplying by 3^n (modulo 256) moves digit n to the front,
 * and times 3 / 256 brings it before the point.
 */
#ifndef HT_FORMATS_BLOCK_TQ1_0_H
#define HT_FORMATS_BLOCK_TQ1_0_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_tq1_0 {
    uint8_t  qs[48];
    uint8_t  qh[4];
    uint16_t d;
} ht_block_tq1_0;
HT_BLOCK_CHECK(tq1_0);

#endif
