/*
 * Q3_K: 256 values in 16 groups of 16, 3.4375 bits each.
 *
 *       0..31   hmask   bit m of byte j = bit 2 of q[32 m + j]
 *      32..95   qs      low two bits: two runs of 32 bytes, one per 128 values; bits 2k, 2k+1 of byte j of run r = q[128 r + 32 k + j] & 3
 *      96..107  scales  16 x 6 bits, v[g] = sc[g] + 32; ht_k3_scales_unpack below
 *     108..109  d
 *
 *     x[i] = d * sc[g] * (q[i] - 4)                   g = i / 16, q in 0..7, sc in -32..31; d may be negative
 *
 * The scale bytes, letter = group (a..p = 0..15), one letter per bit:
 *     0..7    iiiiaaaa jjjjbbbb kkkkcccc lllldddd mmmmeeee nnnnffff oooogggg pppphhhh      bits 0..3 of v
 *     8..11   mmiieeaa nnjjffbb ookkggcc ppllhhdd                                          bits 4..5 of v
 */
#ifndef HT_FORMATS_BLOCK_Q3_K_H
#define HT_FORMATS_BLOCK_Q3_K_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_q3_k {
    uint8_t  hmask[32];
    uint8_t  qs[64];
    uint8_t  scales[12];
    uint16_t d;
} ht_block_q3_k;
HT_BLOCK_CHECK(q3_k);

/* sc[g] in -32..31 out of, and into, the 12 bytes. */
static inline void ht_k3_scales_unpack(const uint8_t packed[12], int8_t sc[16])
{
    for (int g = 0; g < 16; g++) {
        const int low = packed[g % 8] >> (4 * (g / 8)) & 15, high = packed[8 + g % 4] >> (2 * (g / 4)) & 3;
        sc[g] = (int8_t)((low | high << 4) - 32);
    }
}

static inline void ht_k3_scales_pack(uint8_t packed[12], const int8_t sc[16])
{
    for (int j = 0; j < 12; j++) { packed[j] = 0; }
    for (int g = 0; g < 16; g++) {
        const int v = sc[g] + 32;
        packed[g % 8]     = (uint8_t)(packed[g % 8] | (v & 15) << (4 * (g / 8)));
        packed[8 + g % 4] = (uint8_t)(packed[8 + g % 4] | (v >> 4) << (2 * (g / 4)));
    }
}

#endif
