/*
 * How far a decoded row is from its source. Sums are collected in double, part by part, and read off at the end; parts merged in the same order give
 * the same numbers. No function allocates; thread-safe for distinct metrics.
 */
#ifndef HT_QUANT_ERROR_METRICS_H
#define HT_QUANT_ERROR_METRICS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All zero to begin with. */
typedef struct ht_error_metrics {
    int64_t n_elems;
    double  weight;          /* sum of weights                 */
    double  sum_sq_err;      /* sum w (x - y)^2                */
    double  sum_sq;          /* sum w x^2                      */
    double  sum_sq_decoded;  /* sum w y^2                      */
    double  sum_product;     /* sum w x y                      */
    double  max_err;         /* largest |x - y|, not weighted  */
} ht_error_metrics;

/* Adds n_elems values x and what became of them, y; importance: n_elems weights >= 0, NULL for ones. NaN in x or y shows in every sum. */
void ht_error_metrics_add(ht_error_metrics* m, const float* x, const float* y, const float* importance, int64_t n_elems);

void ht_error_metrics_merge(ht_error_metrics* into, const ht_error_metrics* part);

/* Root of the (weighted) mean squared error; 0 when nothing was added. */
double ht_error_rmse(const ht_error_metrics* m);

/* Root of sum_sq_err / sum_sq: RMSE against the RMS of the source; 0 for an exact copy, also of zeros. */
double ht_error_relative(const ht_error_metrics* m);

/* Cosine of the angle between source and decoded; 1 when both are zero, 0 when one is. */
double ht_error_cosine(const ht_error_metrics* m);

#ifdef __cplusplus
}
#endif
#endif
