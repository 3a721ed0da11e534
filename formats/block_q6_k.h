/*
 * Q6_K: 256 values in 16 groups of 16, 6.5625 bits each.
 *
 *       0..127  ql      low four bits: two runs of 64 bytes, one per 128 values; byte j of run r
 *                       = | q[128 r + 64 + j] & 15 high nibble | q[128 r + j] & 15 low nibble |
 *     128..191  qh      high two bits: two runs of 32 bytes; bits 2k, 2k+1 of byte j of run r = q[128 r + 32 k + j] >> 4
 *     192..207  scales  sc[g], int8
 *     208..209  d
 *
 *     x[i] = d * sc[g] * (q[i] - 32)                  g = i / 16, q in 0..63; d may be negative
 */
#ifndef HT_FORMATS_BLOCK_Q6_K_H
#define HT_FORMATS_BLOCK_Q6_K_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_q6_k {
    uint8_t  ql[128];
    uint8_t  qh[64];
    int8_t   scales[16];
    uint16_t d;
} ht_block_q6_k;
HT_BLOCK_CHECK(q6_k);

#endif
