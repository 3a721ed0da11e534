/* The factor of a Hessian's inverse, which error feedback walks along. */
#ifndef HT_QUANT_HESSIAN_H
#define HT_QUANT_HESSIAN_H

#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_hessian_notes {
    double  damping_used; /* as a share of the mean of the diagonal  */
    int     n_retries;    /* times it had to be raised               */
    int64_t n_dead;       /* columns with a diagonal <= 0            */
} ht_hessian_notes;

/*
 *   hessian       (n, n) f32, symmetric
 *   damping       added to the diagonal, as a share of its mean; multiplied by 10 (from 1e-4 at least) until the matrix is positive definite
 *   shrink        0 … 1: off-diagonal elements are multiplied by 1 - shrink
 *   damped        (n, n) f32, the matrix that was factored, or NULL
 *   u_transposed  (n, n) f32: [t * n + k] = U[k][t] for t >= k, else 0, where U is upper triangular and U^T U is the inverse
 * Dead columns get the mean of the diagonal and no off-diagonal elements (of an all-dead matrix: one). f64 inside. `notes` may be NULL.
 * Errors: NUMERIC not finite (row and column), or not positive definite with a damping of 1000; NOMEM.
 */
ht_status ht_hessian_factor(const float* hessian, int64_t n, double damping, double shrink, float* damped, float* u_transposed,
                            ht_hessian_notes* notes, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
