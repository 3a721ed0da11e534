/*
 * NVFP4: 64 4-bit floats (E2M1) in 4 groups of 16, each under an unsigned 8-bit float scale (E4M3), 4.5 bits each.
 *
 *     0..3   d     one scale per group, UE4M3
 *     4..35  qs    four runs of 8 bytes, one per group; byte j of run g = | c[16 g + 8 + j] high nibble | c[16 g + j] low nibble |
 *
 *     x[i] = ue4m3(d[g]) / 2 * ht_fp4_values[c[i]]    g = i / 16
 */
#ifndef HT_FORMATS_BLOCK_NVFP4_H
#define HT_FORMATS_BLOCK_NVFP4_H

#include "formats/block_mxfp4.h"

typedef struct HT_PACKED ht_block_nvfp4 {
    uint8_t d[4];
    uint8_t qs[32];
} ht_block_nvfp4;
HT_BLOCK_CHECK(nvfp4);

#endif
