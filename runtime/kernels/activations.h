/*
 * Activations rounded to 8 bits: the values of Q8_0 (blocks of 32) or Q8_K (blocks of 256), but with a row's parts side by side, so that kernels
 * read whole vectors of codes and whole vectors of scales.
 *
 *     | q: n_cols int8 | d: f32 per block | Q8_0: sum_d, f32 per block: d * (sum of q)         |
 *     |  each part starts at a multiple   | Q8_K: sums, int16 per 16 values: sum of q          |
 *     |  of 64 bytes                      |                                                    |
 *
 *     x[i] ~ d * q[i],  q in -127..127
 *
 * Rounding is to nearest, ties to even. Q8_0: d = max|x| / 127, then rounded to half. Q8_K: d = 1 / (127 / max|x|). (The reference Q8_K gives d the
 * sign of the largest value and q the opposite; products are the same.) A block with NaN or Inf gets a non-finite d, so that every product is NaN.
 * Source: ggml's quantize_row_q8_0 and quantize_row_q8_K as its x86 kernels round.
 */
#ifndef HT_RUNTIME_ACTIVATIONS_H
#define HT_RUNTIME_ACTIVATIONS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/types.h"

/* Where the parts of one row are. */
typedef struct ht_act_row {
    int8_t*  q;
    float*   d;
    float*   sum_d; /* Q8_0 only */
    int16_t* sums;  /* Q8_K only */
} ht_act_row;

static inline size_t ht_act_align(size_t n_bytes) { return (n_bytes + 63) & ~(size_t)63; }

/* Bytes of a row of n_cols activations; `type` is HT_TYPE_q8_0, HT_TYPE_q8_k or HT_TYPE_f32 (left as they are). */
static inline size_t ht_act_row_bytes(ht_type type, int64_t n_cols)
{
    const size_t n = (size_t)n_cols;
    if (type == HT_TYPE_q8_0) { return ht_act_align(n) + 2 * ht_act_align(n / 32 * sizeof(float)); }
    if (type == HT_TYPE_q8_k) {
        return ht_act_align(n) + ht_act_align(n / 256 * sizeof(float)) + ht_act_align(n / 16 * sizeof(int16_t));
    }
    return n * sizeof(float);
}

/* The parts of a row that starts at `base`, 64-byte aligned. */
static inline ht_act_row ht_act_row_q8_0(void* base, int64_t n_cols)
{
    unsigned char* const p = base;
    const size_t         n = (size_t)n_cols, at_d = ht_act_align(n), at_sum = at_d + ht_act_align(n / 32 * sizeof(float));
    return (ht_act_row){ .q = (int8_t*)p, .d = (float*)(void*)(p + at_d), .sum_d = (float*)(void*)(p + at_sum), .sums = NULL };
}

static inline ht_act_row ht_act_row_q8_k(void* base, int64_t n_cols)
{
    unsigned char* const p = base;
    const size_t         n = (size_t)n_cols, at_d = ht_act_align(n), at_sum = at_d + ht_act_align(n / 256 * sizeof(float));
    return (ht_act_row){ .q = (int8_t*)p, .d = (float*)(void*)(p + at_d), .sum_d = NULL, .sums = (int16_t*)(void*)(p + at_sum) };
}

#endif
