#include "quant/error_metrics.h"

#include <math.h>

/* Sums in lanes: independent chains that the compiler may vectorise, added up in a fixed order. */
enum { N_SUMS = 8 };

static double larger_or_nan(double max, double value) { return value > max || isnan(value) ? value : max; }

void ht_error_metrics_add(ht_error_metrics* m, const float* x, const float* y, const float* importance, int64_t n_elems)
{
    double weight[N_SUMS] = { 0 }, sq_err[N_SUMS] = { 0 }, sq[N_SUMS] = { 0 }, sq_decoded[N_SUMS] = { 0 }, product[N_SUMS] = { 0 };
    for (int64_t i = 0; i < n_elems; i += N_SUMS) {
        const int n = n_elems - i < N_SUMS ? (int)(n_elems - i) : N_SUMS;
        for (int k = 0; k < n; k++) {
            const double a = (double)x[i + k], b = (double)y[i + k], w = importance ? (double)importance[i + k] : 1.0, e = a - b;
            weight[k] += w;
            sq_err[k] += w * e * e;
            sq[k] += w * a * a;
            sq_decoded[k] += w * b * b;
            product[k] += w * a * b;
            m->max_err = larger_or_nan(m->max_err, fabs(e));
        }
    }
    for (int k = 0; k < N_SUMS; k++) {
        m->weight += weight[k];
        m->sum_sq_err += sq_err[k];
        m->sum_sq += sq[k];
        m->sum_sq_decoded += sq_decoded[k];
        m->sum_product += product[k];
    }
    m->n_elems += n_elems;
}

void ht_error_metrics_merge(ht_error_metrics* into, const ht_error_metrics* part)
{
    into->n_elems += part->n_elems;
    into->weight += part->weight;
    into->sum_sq_err += part->sum_sq_err;
    into->sum_sq += part->sum_sq;
    into->sum_sq_decoded += part->sum_sq_decoded;
    into->sum_product += part->sum_product;
    into->max_err = larger_or_nan(into->max_err, part->max_err);
}

double ht_error_rmse(const ht_error_metrics* m) { return m->weight > 0.0 ? sqrt(m->sum_sq_err / m->weight) : sqrt(m->sum_sq_err); }

double ht_error_relative(const ht_error_metrics* m) { return m->sum_sq_err == 0.0 ? 0.0 : sqrt(m->sum_sq_err / m->sum_sq); }

double ht_error_cosine(const ht_error_metrics* m)
{
    if (m->sum_sq == 0.0 && m->sum_sq_decoded == 0.0) { return 1.0; }
    if (m->sum_sq == 0.0 || m->sum_sq_decoded == 0.0) { return 0.0; }
    return m->sum_product / (sqrt(m->sum_sq) * sqrt(m->sum_sq_decoded));
}
