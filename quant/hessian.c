/*
 * With J the matrix that reverses an order, J H J = L L^T gives H = (J L J)(J L J)^T where J L J is upper triangular, so H^-1 = U^T U with
 * U = (J L J)^-1 = J L^-1 J: one Cholesky factorisation and one triangular inverse, and the inverse of H is never formed. A lower triangle by rows is
 * an upper triangle by columns, which is what LAPACK is told it has: so nothing is transposed. BLAS runs on one thread: the same bits everywhere.
 */
#include "quant/hessian.h"

#include <cblas.h>
#include <inttypes.h>
#include <lapacke.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static ht_status check_finite(const float* hessian, int64_t n, ht_error* err)
{
    for (int64_t i = 0; i < n * n; i++) {
        if (!isfinite(hessian[i])) {
            return ht_fail(err, HT_STATUS_NUMERIC, "the Hessian is not finite at row %" PRId64 ", column %" PRId64, i / n, i % n);
        }
    }
    return HT_STATUS_OK;
}

/* The reversed matrix with all changes made, lower triangle and diagonal. */
static void fill_reversed(double* a, const float* hessian, int64_t n, double live_mean, double added, double keep)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t row     = n - 1 - i;
        const double  diag    = (double)hessian[row * n + row];
        const bool    is_dead = !(diag > 0.0);
        for (int64_t j = 0; j < i; j++) {
            const int64_t column = n - 1 - j;
            const bool    dead   = is_dead || !(hessian[column * n + column] > 0.0f);
            a[i * n + j] = dead ? 0.0 : keep * (double)hessian[row * n + column];
        }
        a[i * n + i] = (is_dead ? live_mean : diag) + added;
    }
}

ht_status ht_hessian_factor(const float* hessian, int64_t n, double damping, double shrink, float* damped, float* u_transposed,
                            ht_hessian_notes* notes, ht_error* err)
{
    ht_status        st   = HT_STATUS_OK;
    ht_hessian_notes note = { .damping_used = damping };
    double           sum  = 0.0;
    double*          a    = malloc((size_t)n * (size_t)n * sizeof *a);
    HT_CHECK(a, NOMEM, "the factor of a Hessian of %" PRId64 " columns", n);
    HT_TRY(check_finite(hessian, n, err));
    openblas_set_num_threads(1);
    for (int64_t i = 0; i < n; i++) {
        const float diag = hessian[i * n + i];
        if (diag > 0.0f) { sum += (double)diag; }
        else { note.n_dead++; }
    }
    const double mean = note.n_dead < n ? sum / (double)(n - note.n_dead) : 1.0;
    for (;;) {
        fill_reversed(a, hessian, n, mean, note.damping_used * mean, 1.0 - shrink);
        if (LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'U', (lapack_int)n, a, (lapack_int)n) == 0) { break; }
        HT_CHECK(note.damping_used < 1000.0, NUMERIC, "a Hessian of %" PRId64 " columns is not positive definite with any damping", n);
        note.damping_used = note.damping_used < 1e-5 ? 1e-4 : 10.0 * note.damping_used;
        note.n_retries++;
    }
    if (damped) {
        for (int64_t i = 0; i < n; i++) {
            const bool is_dead = !(hessian[i * n + i] > 0.0f);
            for (int64_t j = 0; j < n; j++) {
                const bool dead   = is_dead || !(hessian[j * n + j] > 0.0f);
                damped[i * n + j] = dead ? 0.0f : (float)((1.0 - shrink) * (double)hessian[i * n + j]);
            }
            damped[i * n + i] = (float)((is_dead ? mean : (double)hessian[i * n + i]) + note.damping_used * mean);
        }
    }
    HT_CHECK(LAPACKE_dtrtri(LAPACK_COL_MAJOR, 'U', 'N', (lapack_int)n, a, (lapack_int)n) == 0, NUMERIC, "the factor of a Hessian is singular");
    for (int64_t t = 0; t < n; t++) { /* U[k][t] = L^-1[n - 1 - k][n - 1 - t] */
        for (int64_t k = 0; k < n; k++) { u_transposed[t * n + k] = k <= t ? (float)a[(n - 1 - k) * n + n - 1 - t] : 0.0f; }
    }
    if (notes) { *notes = note; }
done:
    free(a);
    return st;
}
