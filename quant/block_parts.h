/*
 * Blocks taken apart and put together: scales, minima and codes of one block of any written type, as plain numbers. Encoders pack through it, and the
 * methods that go on from an encoded block (gptq.h) start from what it unpacks.
 *
 *   plain types   x = d * level[code] (+ m)                                       1 group of 32
 *   K types       x = d * sc[g] * level[code] - m * mn[g]                         8 groups of 32, or 16 of 16
 *
 * with d and m stored as halves (MXFP4: d is a power of two, stored as its exponent).
 */
#ifndef HT_QUANT_BLOCK_PARTS_H
#define HT_QUANT_BLOCK_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HT_PARTS_ELEMS_MAX = 256, HT_PARTS_GROUPS_MAX = 16 };

typedef struct ht_block_parts {
    uint16_t d, m;                         /* halves; MXFP4: d is the exponent byte; m 0 where the type has none */
    int8_t   sc[HT_PARTS_GROUPS_MAX];      /* K types: whole scales, signed for Q3_K, Q6_K, IQ4_XS; else 1       */
    int8_t   mn[HT_PARTS_GROUPS_MAX];      /* K types with minima; else 0                                        */
    uint8_t  codes[HT_PARTS_ELEMS_MAX];    /* 0 is the lowest level (MXFP4 and IQ4: index of the table)          */
} ht_block_parts;

typedef enum ht_scale_store { HT_SCALE_F16, HT_SCALE_E8M0 } ht_scale_store;

/* What a type is made of. */
typedef struct ht_block_format {
    ht_type        type;
    int            group, block;      /* elements per scale, elements per block                                          */
    int            n_levels;          /* codes 0 … n_levels - 1                                                          */
    const float*   levels;            /* n_levels numbers; ascending but for MXFP4 (its codes 8 … 15 are negatives)      */
    bool           is_whole;          /* levels[c] = levels[0] + c                                                       */
    bool           has_min;           /* m (plain), or m and mn (K)                                                      */
    bool           is_k;
    int            sc_low, sc_high;   /* K types: range of sc; mn: 0 … sc_high. Else 0, 0                                */
    ht_scale_store store;
    void (*pack)(void* block, const ht_block_parts* parts);
    void (*unpack)(const void* block, ht_block_parts* parts);
} ht_block_format;

/* NULL for types that are not written in blocks (floats, read-only types). */
const ht_block_format* ht_block_format_get(ht_type type);

#ifdef __cplusplus
}
#endif
#endif
