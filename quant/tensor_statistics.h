/*
 * The statistics of one tensor of a source, read from a statistics file and made ready for rounding it and for judging what an error of it costs.
 */
#ifndef HT_QUANT_TENSOR_STATISTICS_H
#define HT_QUANT_TENSOR_STATISTICS_H

#include "quant/gptq.h"
#include "quant/statistics.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A place where an error of the tensor reaches the output (statistics.h). */
typedef struct ht_tensor_role {
    const float* row_weight; /* n_rows, or NULL: all one      */
    float*       hessian;    /* (n, n), fitted                */
    float*       held_out;   /* (n, n), or NULL               */
} ht_tensor_role;

typedef struct ht_tensor_statistics {
    const ht_statistics_entry* entry;      /* NULL: the file has nothing on this tensor                      */
    int64_t                    n, n_mats;  /* row length, matrices                                           */
    float*                     importance; /* (n_mats, n), or NULL                                           */
    float*                     hessian;    /* (n, n) to round against, or NULL; may be a role's              */
    int                        n_roles;    /* 0 without Hessians                                             */
    ht_tensor_role             roles[2];
    bool                       is_guided;
    float*                     folded_weight; /* row weights after folding (fold.h), or NULL                 */
} ht_tensor_statistics;

/*
 * `with_hessians`: read the Hessians too (of a tensor of one matrix). The rounding Hessian of a tied embedding is that of its role as output matrix plus that of
 * its role as embedding divided by the number of rows.
 * Errors: those of ht_statistics_read_hessian; NOMEM. Free with ht_tensor_statistics_deinit.
 */
ht_status ht_tensor_statistics_init(ht_tensor_statistics* out, const ht_statistics* statistics, const ht_tensor_info* tensor, bool with_hessians,
                                    ht_error* err);
void      ht_tensor_statistics_deinit(ht_tensor_statistics* statistics);

/*
 * Estimated KL divergence (nats per token; without guidance in arbitrary units) that rounding rows [row, row + n_rows) from x to `back` costs: the sum over roles
 * and rows, on the fitted Hessians or on those held out.
 */
double ht_tensor_cost(const ht_tensor_statistics* statistics, bool held_out, ht_round_worker* worker, uint32_t cpu_features, const float* x,
                      const float* back, int64_t row, int64_t n_rows);

#ifdef __cplusplus
}
#endif
#endif
