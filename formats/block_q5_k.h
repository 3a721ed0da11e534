/*
 * Q5_K: 256 values in 8 groups of 32, 5.5 bits each.
 *
 *      0..1    d
 *      2..3    dmin
 *      4..15   scales  as Q4_K
 *     16..47   qh      bit g of byte j = bit 4 of q[32 g + j]
 *     48..175  qs      low four bits, as Q4_K
 *
 *     x[i] = d * sc[g] * q[i] - dmin * mn[g]          g = i / 32, q in 0..31, sc and mn in 0..63
 */
#ifndef HT_FORMATS_BLOCK_Q5_K_H
#define HT_FORMATS_BLOCK_Q5_K_H

#include "formats/block_q4_k.h"

typedef struct HT_PACKED ht_block_q5_k {
    uint16_t d;
    uint16_t dmin;
    uint8_t  scales[12];
    uint8_t  qh[32];
    uint8_t  qs[128];
} ht_block_q5_k;
HT_BLOCK_CHECK(q5_k);

#endif
