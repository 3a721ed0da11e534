/*
 * The plain absmax forms, for analysis: what a tensor loses when its numbers are rounded under one scale per tensor, per row or per group, with
 * no search. They show where outliers hurt; they are no GGUF types, and nothing is stored: a round trip gives the restored numbers and their price.
 *
 *     int8, int4   x = d * q             d = absmax / 127 or / 7, q in -127..127 or -7..7, ties to even
 *     nf4          x = d * level[code]   d = absmax, 16 levels at the quantiles of a normal distribution (Dettmers et al. 2023, arXiv:2305.14314)
 *
 * d is kept in binary16: below its smallest number the group becomes zero, above its largest it stops there.
 */
#ifndef HT_QUANT_ABSMAX_H
#define HT_QUANT_ABSMAX_H

#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ht_absmax_code { HT_ABSMAX_INT8, HT_ABSMAX_INT4, HT_ABSMAX_NF4 } ht_absmax_code;

typedef struct ht_absmax_form {
    const char*    name; /* "int8-tensor", "int4-row", "int4-g32", "nf4-g64" …                                             */
    ht_absmax_code code;
    int            group; /* values that share a scale; HT_ABSMAX_ROW, HT_ABSMAX_TENSOR. The last group of a row may be shorter */
} ht_absmax_form;

enum { HT_ABSMAX_ROW = 0, HT_ABSMAX_TENSOR = -1 };

/* All forms, coarse to fine per code; ends with a NULL name. */
extern const ht_absmax_form ht_absmax_forms[];

/* By name; NULL when unknown. */
const ht_absmax_form* ht_absmax_find(const char* name);

/* Code bits plus 16 bits per scale. */
double ht_absmax_bits_per_weight(const ht_absmax_form* form, int64_t n_rows, int64_t n_cols);

/*
 * x    (n_rows, n_cols) row-major
 * out  as x, owned by the caller: x after encoding and decoding; may be x itself
 * Errors: ARG n_rows or n_cols < 1; NUMERIC NaN or Inf in x, naming row and column (out is then untouched). Thread-safe for distinct outputs.
 */
ht_status ht_absmax_round_trip(const ht_absmax_form* form, const float* x, int64_t n_rows, int64_t n_cols, float* out, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
