/*
 * What files are worth on given tokens: the mean KL divergence of their predictions from those of the source, all weights decoded, f32 arithmetic. Base and
 * files go through the layers one after another, so memory holds one layer, the hidden states and a block of logits, whatever the size of the model.
 */
#ifndef HT_CALIB_DIVERGENCE_H
#define HT_CALIB_DIVERGENCE_H

#include "formats/source.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_divergence {
    double  mean, stderr_mean; /* nats per token                                     */
    double* each;              /* n_chunks * n_ctx values, owned; for paired differences */
} ht_divergence;

/*
 * ids (n_chunks, n_ctx); every position is scored. out: n_files, each to be freed with ht_divergence_deinit.
 * Errors: UNSUPPORTED architecture; ARG a file of another shape than the base, ids outside of the vocabulary; IO; NUMERIC; NOMEM; CANCELLED.
 */
ht_status ht_divergence_measure(ht_divergence* out, const ht_source* base, const ht_source* const* files, int n_files, const int32_t* ids, int64_t n_ctx,
                                int64_t n_chunks, const ht_ctx* ctx, ht_error* err);
void      ht_divergence_deinit(ht_divergence* divergence);

/* Mean and standard error of n values. */
void ht_mean_and_stderr(const double* values, int64_t n, double* mean, double* stderr_mean);

#ifdef __cplusplus
}
#endif
#endif
