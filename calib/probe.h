/*
 * Sensitivities without gradients: how much an error at the output of each layer moves the predictions, by trying.
 *
 * Every layer in turn gets small random errors in all of its matrices; what that adds to its output goes on through the layers above, and the KL divergence of the
 * predictions, over the energy that was added, is the layer's factor. The energy that errors of one matrix alone add to the layer's output then tells what
 * an error of that matrix costs:
 *
 *     estimated KL = 1/2 * factor * sum over rows r of dw_r H dw_r^T        H = mean of x x^T over tokens
 *
 * All probes climb the layers together, so the weights are read once. Memory: (n_layers + 2) states of N_PROBE_TOKENS tokens.
 */
#ifndef HT_CALIB_PROBE_H
#define HT_CALIB_PROBE_H

#include "calib/layer_runner.h"
#include "calib/texts.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * factors: (n_layers, HT_LINEAR_COUNT), then one for the embedding (per unit of squared error of a token's row). Tokens are the beginnings of chunks that are not
 * held out. Deterministic for any number of threads. Errors: as ht_layer_runner_init; NUMERIC; CANCELLED.
 */
ht_status ht_probe_run(const ht_source* source, const ht_calib_texts* texts, const ht_ctx* ctx, double* factors, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
