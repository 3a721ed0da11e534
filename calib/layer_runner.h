/*
 * A model that is run layer by layer in f32, with the weights of one layer in memory: what calibration, probes and measurements of divergence share.
 */
#ifndef HT_CALIB_LAYER_RUNNER_H
#define HT_CALIB_LAYER_RUNNER_H

#include "calib/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_layer_runner {
    const ht_source*    source;
    const ht_ctx*       ctx;
    const ht_family*    family;
    ht_hparams          hparams;
    ht_rope             rope;
    const ht_graph_ops* ops;
    float*              output_norm;
    const char*         output_name; /* "output.weight", or the embedding's name when that is tied to it  */
    int64_t             n_ctx;       /* tokens of a chunk                                                  */
    int64_t             n_members;   /* chunks whose inputs of linears are kept at the same time           */
    ht_layer_space*     spaces;      /* one per thread                                                     */
    float*              inputs;      /* (n_members, n_ctx, width) x 4: what the spaces' h1, a, h2, f point to */
} ht_layer_runner;

/*
 * `source` and `ctx` must outlive the runner; n_members is raised to the number of threads.
 * Errors: UNSUPPORTED architecture; FORMAT missing or misshapen tensors; IO; NOMEM. Free with ht_layer_runner_deinit (also after a failure).
 */
ht_status ht_layer_runner_init(ht_layer_runner* out, const ht_source* source, int64_t n_ctx, int64_t n_members, const ht_ctx* ctx, ht_error* err);
void      ht_layer_runner_deinit(ht_layer_runner* run);

/* The thread's space, its inputs in the place of `member`. */
ht_layer_space* ht_layer_runner_space(const ht_layer_runner* run, int thread, int64_t member);

ht_status ht_layer_runner_read(const ht_layer_runner* run, ht_layer_f32* layer, int64_t index, ht_error* err);

/* x (n, n_embd): the embeddings of n tokens. */
ht_status ht_layer_runner_embed(const ht_layer_runner* run, const int32_t* ids, int64_t n, float* x, ht_error* err);

/* n_chunks chunks x[k] (n_ctx, n_embd), each replaced by the layer's output. Threads share the chunks. Errors: NOMEM. */
ht_status ht_layer_runner_forward(const ht_layer_runner* run, const ht_layer_f32* layer, float* const* x, int64_t n_chunks, ht_error* err);

/* Logits (n, n_vocab) of n states x (n, n_embd) before the last norm. The output matrix is read in panels, so it is never in memory as a whole. */
ht_status ht_layer_runner_logits(const ht_layer_runner* run, const float* x, int64_t n, float* logits, ht_error* err);

/* kl[t]: divergence of q's prediction from p's, logits (n, n_vocab) both; nats. p is left as probabilities. */
void ht_logits_divergence(const ht_layer_runner* run, float* p, const float* q, int64_t n, double* kl);

/* A whole f32 matrix (NULL when it is absent and not required). Errors: FORMAT; IO; NOMEM. */
ht_status ht_read_matrix(float** out, const ht_source* source, const char* name, bool required, int64_t n_cols, ht_error* err);

/* Multiply-adds of a layer's forward pass, times two. */
double ht_layer_flops(const ht_hparams* h, int64_t n_tokens, int64_t n_ctx);

/* The index of the first value that is not finite, or n. */
int64_t ht_find_nonfinite(const float* x, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
