#include "formats/block_scales.h"

#include <stddef.h>
#include <string.h>

#include "formats/block_iq1_m.h"
#include "formats/block_iq1_s.h"
#include "formats/block_iq2_s.h"
#include "formats/block_iq2_xs.h"
#include "formats/block_iq2_xxs.h"
#include "formats/block_iq3_s.h"
#include "formats/block_iq3_xxs.h"
#include "formats/block_iq4_nl.h"
#include "formats/block_iq4_xs.h"
#include "formats/block_mxfp4.h"
#include "formats/block_nvfp4.h"
#include "formats/block_q1_0.h"
#include "formats/block_q2_0.h"
#include "formats/block_q2_k.h"
#include "formats/block_q3_k.h"
#include "formats/block_q4_0.h"
#include "formats/block_q4_1.h"
#include "formats/block_q4_k.h"
#include "formats/block_q5_0.h"
#include "formats/block_q5_1.h"
#include "formats/block_q5_k.h"
#include "formats/block_q6_k.h"
#include "formats/block_q8_0.h"
#include "formats/block_q8_1.h"
#include "formats/block_q8_k.h"
#include "formats/block_tq1_0.h"
#include "formats/block_tq2_0.h"

/*
 * In every one of these formats "not finite" is "all bits of a mask are set": the exponent of an IEEE-like float, all of an E8M0, the low
 * seven bits of a UE4M3. So one rule serves them all; a row says where the fields are.
 */
typedef struct scale_fields {
    int      n_fields, n_bytes; /* n_bytes of each: 1, 2, 4, 8 */
    uint64_t mask;
    size_t   offsets[4];
} scale_fields;

#define F16_AT(...) { sizeof((size_t[]){ __VA_ARGS__ }) / sizeof(size_t), 2, 0x7C00, { __VA_ARGS__ } }
#define D(stem) [HT_TYPE_##stem] = F16_AT(offsetof(ht_block_##stem, d))
#define D_AND(stem, other) [HT_TYPE_##stem] = F16_AT(offsetof(ht_block_##stem, d), offsetof(ht_block_##stem, other))

static const scale_fields table[HT_TYPE_END] = {
    [HT_TYPE_f32] = { 1, 4, 0x7F800000, { 0 } },
    [HT_TYPE_f64] = { 1, 8, 0x7FF0000000000000, { 0 } },
    [HT_TYPE_f16] = F16_AT(0),
    [HT_TYPE_bf16] = { 1, 2, 0x7F80, { 0 } },
    D(q4_0), D_AND(q4_1, m), D(q5_0), D_AND(q5_1, m), D(q8_0), D_AND(q8_1, s), D(q1_0), D(q2_0),
    D_AND(q2_k, dmin), D(q3_k), D_AND(q4_k, dmin), D_AND(q5_k, dmin), D(q6_k),
    [HT_TYPE_q8_k] = { 1, 4, 0x7F800000, { offsetof(ht_block_q8_k, d) } },
    D(iq1_s), D(iq2_xxs), D(iq2_xs), D(iq2_s), D(iq3_xxs), D(iq3_s), D(iq4_nl), D(iq4_xs), D(tq1_0), D(tq2_0),
    /* the half is spread over the top nibbles of four u16: its exponent is bits 14..15 of the third and 12..14 of the fourth */
    [HT_TYPE_iq1_m] = { 1, 8, (uint64_t)3 << 46 | (uint64_t)7 << 60, { offsetof(ht_block_iq1_m, scales) } },
    [HT_TYPE_mxfp4] = { 1, 1, 0xFF, { offsetof(ht_block_mxfp4, e) } },
    [HT_TYPE_nvfp4] = { 4, 1, 0x7F, { offsetof(ht_block_nvfp4, d), offsetof(ht_block_nvfp4, d) + 1, offsetof(ht_block_nvfp4, d) + 2,
                                      offsetof(ht_block_nvfp4, d) + 3 } },
};

/* First of n_blocks whose field has all bits of the mask. The size is a constant at each call, so each becomes a loop of plain loads. */
static inline int64_t find(const unsigned char* field, size_t stride, size_t n_bytes, uint64_t mask, int64_t n_blocks)
{
    for (int64_t i = 0; i < n_blocks; i++, field += stride) {
        uint64_t value = 0;
        memcpy(&value, field, n_bytes);
        if ((value & mask) == mask) { return i; }
    }
    return n_blocks;
}

int64_t ht_blocks_find_nonfinite(ht_type type, const void* blocks, int64_t n_blocks)
{
    const scale_fields* f      = &table[type];
    const size_t        stride = (size_t)ht_type_get(type)->block_bytes;
    int64_t             first  = n_blocks;
    for (int k = 0; k < f->n_fields; k++) {
        const unsigned char* field = (const unsigned char*)blocks + f->offsets[k];
        switch (f->n_bytes) { /* looking no further than what the fields before found */
        case 1: first = find(field, stride, 1, f->mask, first); break;
        case 2: first = find(field, stride, 2, f->mask, first); break;
        case 4: first = find(field, stride, 4, f->mask, first); break;
        default: first = find(field, stride, 8, f->mask, first); break;
        }
    }
    return first;
}
