/*
 * MXFP4: 32 4-bit floats (E2M1) under one power-of-two scale (E8M0), 4.25 bits each. OCP Microscaling Formats (MX) specification 1.0.
 *
 *     0      e
 *     1..16  qs    byte j = | c[j+16] high nibble | c[j] low nibble |
 *
 *     x[i] = 2^(e - 128) * ht_fp4_values[c[i]]        the table holds doubled values, hence 128 and not 127
 */
#ifndef HT_FORMATS_BLOCK_MXFP4_H
#define HT_FORMATS_BLOCK_MXFP4_H

#include "formats/block.h"

typedef struct HT_PACKED ht_block_mxfp4 {
    uint8_t e;
    uint8_t qs[16];
} ht_block_mxfp4;
HT_BLOCK_CHECK(mxfp4);

/* Twice the value of each E2M1 code: 0 1 2 3 4 6 8 12 and their negatives; code 8 is -0, stored as 0. */
extern const int8_t ht_fp4_values[16];

/* 2^(e - 128) for any byte; e = 0 and 1 are subnormal. The NaN code 255 reads as 2^127, as in ggml. */
static inline float ht_e8m0_half_to_f32(uint8_t e)
{
    return ht_f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

#endif
