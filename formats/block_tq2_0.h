/*
 * TQ2_0: 256 ternary values, four per byte, 2.0625 bits each.
 *
 *      0..63  qs   two runs of 32 bytes, one per 128 values; bits 2k, 2k+1 of byte j of run r = t[128 r + 32 k + j]
 *     64..65  d
 *
 *     x[i] = d * (t[i] - 1)          t in 0..2 (3 decodes to 2 d)
 */
#ifndef HT_FORMATS_BLOCK_TQ2_0_H
#define HT_FORMATS_BLOCK_TQ2_0_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_tq2_0 {
    uint8_t  qs[64];
    uint16_t d;
} ht_block_tq2_0;
HT_BLOCK_CHECK(tq2_0);

#endif
