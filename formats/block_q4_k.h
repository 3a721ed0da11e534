/*
 * Q4_K: 256 values in 8 groups of 32, 4.5 bits each.
 *
 *      0..1    d
 *      2..3    dmin
 *      4..15   scales  8 x (6-bit sc, 6-bit mn); ht_k4_scales_unpack below
 *     16..143  qs      four runs of 32 bytes, one per 64 values; byte j of run r = | q[64 r + 32 + j] high nibble | q[64 r + j] low nibble |
 *
 *     x[i] = d * sc[g] * q[i] - dmin * mn[g]          g = i / 32, q in 0..15, sc and mn in 0..63
 *
 * The scale bytes, capital letter = sc of a group, small letter = mn (A..H = 0..7), one letter per bit:
 *      0..3    EEAAAAAA FFBBBBBB GGCCCCCC HHDDDDDD
 *      4..7    eeaaaaaa ffbbbbbb ggcccccc hhdddddd
 *      8..11   eeeeEEEE ffffFFFF ggggGGGG hhhhHHHH      (bits 0..3; bits 4..5 are above)
 */
#ifndef HT_FORMATS_BLOCK_Q4_K_H
#define HT_FORMATS_BLOCK_Q4_K_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_q4_k {
    uint16_t d;
    uint16_t dmin;
    uint8_t  scales[12];
    uint8_t  qs[128];
} ht_block_q4_k;
HT_BLOCK_CHECK(q4_k);

/* sc[g] and mn[g], each 0..63, out of, and into, the 12 bytes. Q5_K packs its scales the same way. */
static inline void ht_k4_scales_unpack(const uint8_t packed[12], uint8_t sc[8], uint8_t mn[8])
{
    for (int g = 0; g < 4; g++) {
        sc[g]     = packed[g] & 63;
        mn[g]     = packed[g + 4] & 63;
        sc[g + 4] = (uint8_t)((packed[g + 8] & 15) | (packed[g] >> 6) << 4);
        mn[g + 4] = (uint8_t)((packed[g + 8] >> 4) | (packed[g + 4] >> 6) << 4);
    }
}

static inline void ht_k4_scales_pack(uint8_t packed[12], const uint8_t sc[8], const uint8_t mn[8])
{
    for (int g = 0; g < 4; g++) {
        packed[g]     = (uint8_t)(sc[g] | (sc[g + 4] >> 4) << 6);
        packed[g + 4] = (uint8_t)(mn[g] | (mn[g + 4] >> 4) << 6);
        packed[g + 8] = (uint8_t)((sc[g + 4] & 15) | (mn[g + 4] & 15) << 4);
    }
}

#endif
