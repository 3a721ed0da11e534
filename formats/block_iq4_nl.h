/*
 * IQ4_NL: 32 values on a non-linear scale of 16 levels, 4.5 bits each.
 *
 *     0..1   d
 *     2..17  qs    byte j = | c[j+16] high nibble | c[j] low nibble |
 *
 *     x[i] = d * ht_iq4_values[c[i]]
 */
#ifndef HT_FORMATS_BLOCK_IQ4_NL_H
#define HT_FORMATS_BLOCK_IQ4_NL_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_iq4_nl {
    uint16_t d;
    uint8_t  qs[16];
} ht_block_iq4_nl;
HT_BLOCK_CHECK(iq4_nl);

/* The levels, ascending: -127 … 113. */
extern const int8_t ht_iq4_values[16];

#endif
