/*
 * Rounding a matrix against the Hessian of its inputs: error feedback (GPTQ) inside the real block formats, coordinate descent on codes and
 * scales, and a guard per row.
 *
 * The error of row w rounded to q is E = (w - q) H (w - q)^T. Rows are independent. For each tile of 16 rows:
 *
 *   importance  the type's encoder weighs columns by the diagonal of H; its scales are those that all methods start from
 *   gptq        columns in order: round to the nearest level, push the error on to the columns that follow (U^T U = H^-1)
 *   descent     group by group: other scales with the codes re-rounded inside the group, single codes, scales refitted to codes, d and dmin
 *               refitted to a super-block; each change is kept only when E falls, so a sweep never hurts
 *   guard       E of every row is computed exactly; a row that is not clearly better than importance rounding is also tried as importance rounding
 *               plus descent, and the least of all is kept. No row is ever worse than importance rounding
 *
 * Sources: Frantar et al. 2022, arXiv:2210.17323 (error feedback); the order of work and the guard: this project's study, docs/measured.md.
 */
#ifndef HT_QUANT_GPTQ_H
#define HT_QUANT_GPTQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "formats/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ht_round_method {
    HT_ROUND_IMPORTANCE, /* the encoder with importance                        */
    HT_ROUND_DESCENT,    /* importance, then descent                           */
    HT_ROUND_GPTQ        /* error feedback, then descent, then the guard       */
} ht_round_method;

typedef struct ht_round_options {
    ht_round_method method;
    double          damping;  /* added to the diagonal, as a share of its mean: 0.01                   */
    double          shrink;   /* 0 … 1: how far off-diagonal elements are moved towards zero           */
    int             n_sweeps; /* of descent: 3 (each costs about as much as error feedback)            */
} ht_round_options;

/* A Hessian made ready: shared, read-only, by all rows, types and threads. */
typedef struct ht_rounding ht_rounding;

typedef struct ht_rounding_notes {
    double  damping_used; /* more than asked for when the matrix was not positive definite */
    int64_t n_dead;       /* columns whose input is always zero: rounded plainly           */
} ht_rounding_notes;

/*
 *   hessian     (n, n) f32 symmetric, mean over tokens; borrowed, must outlive the result
 *   importance  n weights for the encoder, or NULL: the diagonal of `hessian`
 * `notes` may be NULL. Errors: NOMEM; NUMERIC (not finite; not positive definite with any damping).
 */
ht_status ht_rounding_create(ht_rounding** out, const float* hessian, int64_t n, const float* importance, const ht_round_options* options,
                             ht_rounding_notes* notes, ht_error* err);
void      ht_rounding_free(ht_rounding* rounding);

/* Scratch of one thread for rows of up to n_cols. */
typedef struct ht_round_worker ht_round_worker;
ht_round_worker* ht_round_worker_create(int64_t n_cols); /* NULL when out of memory */
void             ht_round_worker_free(ht_round_worker* worker);

/* Sums over rows; the errors are E under the given Hessian, undamped and unshrunk. */
typedef struct ht_round_report {
    int64_t n_rows, n_guarded, n_importance; /* guarded: tried again; importance: kept as importance rounding */
    double  error, error_importance;
} ht_round_report;

/*
 * Encode n_rows rows x (n_rows, n) to blocks of `type`. `report` is added to; may be NULL. The bytes do not depend on the instruction set
 * nor on how rows are split into calls of multiples of 16.
 */
void ht_round_rows(const ht_rounding* rounding, ht_round_worker* worker, ht_type type, uint32_t cpu_features, const float* x, int64_t n_rows,
                   void* blocks, ht_round_report* report);

/* errors[r] = (a_r - b_r) H (a_r - b_r)^T for n_rows rows of n values. */
void ht_row_errors(const float* hessian, int64_t n, ht_round_worker* worker, uint32_t cpu_features, const float* a, const float* b, int64_t n_rows,
                   double* errors);

#ifdef __cplusplus
}
#endif
#endif
