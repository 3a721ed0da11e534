/*
 * IQ4_XS: 256 values on IQ4_NL's levels in 8 groups of 32, 4.25 bits each.
 *
 *     0..1    d
 *     2..3    scales_h  bits 2g, 2g+1 = bits 4..5 of v[g]
 *     4..7    scales_l  byte j = | v[2j+1] & 15 high nibble | v[2j] & 15 low nibble |
 *     8..135  qs        eight runs of 16 bytes, one per group; byte j of run g = | c[32 g + 16 + j] high nibble | c[32 g + j] low nibble |
 *
 *     x[i] = d * (v[g] - 32) * ht_iq4_values[c[i]]    g = i / 32; d may be negative
 */
#ifndef HT_FORMATS_BLOCK_IQ4_XS_H
#define HT_FORMATS_BLOCK_IQ4_XS_H

#include "formats/block_iq4_nl.h"

typedef struct HT_PACKED ht_block_iq4_xs {
    uint16_t d;
    uint16_t scales_h;
    uint8_t  scales_l[4];
    uint8_t  qs[128];
} ht_block_iq4_xs;
HT_BLOCK_CHECK(iq4_xs);

#endif
