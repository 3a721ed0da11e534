/*
 * Per-channel scales folded into the weights (AWQ): the inputs of a matrix are divided by s and its columns multiplied by s, which changes nothing in exact
 * arithmetic, but moves rounding error away from the channels that matter. The division is folded into what produces the input, so the file stays plain:
 *
 *   attn_norm -> attn_q, attn_k, attn_v        ffn_norm -> ffn_gate, ffn_up        (norm weights / s)
 *   ffn_up -> ffn_down                         (rows of ffn_up / s)
 *   attn_v -> attn_output                      (rows of attn_v / s; with grouped queries one s for all heads that a row feeds)
 *
 * s_i = (root mean square of channel i) ^ alpha, scaled to a geometric mean of one; channels that are always zero keep s = 1. alpha is chosen per group on the
 * real block formats by the cost on held-out text of a sample of rows; alpha = 0, identity, is always the first candidate. The scale search of the encoders
 * chooses the clipping. The automatic method folds only where error feedback gains by it too. Source: Lin et al. 2023, arXiv:2306.00978.
 */
#ifndef HT_QUANT_FOLD_H
#define HT_QUANT_FOLD_H

#include "quant/calibrated.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What multiplies a tensor: columns (n_cols values) and rows (n_rows values), either NULL. */
typedef struct ht_fold {
    float *columns, *rows;
} ht_fold;

typedef struct ht_folding {
    int64_t  n_tensors;
    ht_fold* folds;             /* by index of the source's tensors              */
    int64_t  n_groups, n_folded; /* groups looked at; of them with alpha > 0      */
    double   cost_identity, cost; /* estimated on the sample, all groups          */
} ht_folding;

/*
 * Search all groups of all layers. types[i]: what tensor i will be written as; groups with a tensor that is not quantized, is missing, or has biases or norms in
 * between keep identity. Deterministic. Errors: IO; NOMEM; NUMERIC; CANCELLED.
 */
ht_status ht_folding_search(ht_folding* out, const ht_source* source, const ht_calibration* calibration, const ht_type* types, const ht_ctx* ctx, ht_error* err);
void      ht_folding_deinit(ht_folding* folding);

/* x (n_rows, n) rows [row, …) of the tensor, in place. */
void ht_fold_rows(const ht_fold* fold, float* x, int64_t row, int64_t n_rows, int64_t n);

/* The statistics of a folded tensor: inputs divided by the columns' factors, errors of rows weighed by the inverse squares of the rows'. */
ht_status ht_fold_statistics(const ht_fold* fold, ht_tensor_statistics* statistics, int64_t n_rows, ht_error* err);

/*
 * Scales for one alpha from the mean squares of n channels: finite and > 0 for any input, and 1 for channels that are zero.
 */
void ht_fold_scales(const float* mean_square, int64_t n, double alpha, float* scales);

#ifdef __cplusplus
}
#endif
#endif
