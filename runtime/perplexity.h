/*
 * What a file is worth: perplexity on a text, and the divergence of its predictions from those of a base model.
 *
 * Protocol (that of llama.cpp's perplexity tool): the text is cut into consecutive chunks of n_ctx tokens, the tail is dropped; when the model
 * adds BOS, the first token of each chunk is replaced by it; each chunk starts from an empty cache; the predictions of tokens n_ctx/2 + 1 … n_ctx - 1
 * are scored. Base and files run in lockstep, chunk by chunk, so nothing but a few rows of logits is ever kept.
 */
#ifndef HT_RUNTIME_PERPLEXITY_H
#define HT_RUNTIME_PERPLEXITY_H

#include "runtime/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_score {
    int64_t n_scored;               /* predictions                                                          */
    double  nll_mean;               /* mean negative log-likelihood, nats                                   */
    double  perplexity;             /* exp(nll_mean)                                                        */
    double  perplexity_stderr;      /* standard error of the mean carried through exp; NaN for one chunk, which tells nothing of the spread */
    bool    has_kl;                 /* the fields below are set                                             */
    double  kl_mean, kl_mean_stderr, kl_median, kl_p99, kl_p999, kl_max; /* nats, KL(base || file)           */
    double  same_top1;              /* share of positions whose likeliest token agrees, 0 to 1              */
    double  rms_dp;                 /* root mean square of p_file(token) - p_base(token), 0 to 1            */
    double  wall_s;                 /* time spent in this model                                             */
    double  tokens_per_s;
} ht_score;

typedef struct ht_perplexity_options {
    int64_t    n_ctx;     /* >= 4; tokens per chunk                           */
    int64_t    n_chunks;  /* at most so many; 0: all that the text holds      */
    ht_kv_type kv_type;
    int32_t    bos;       /* token that replaces the first of each chunk; -1: none */
} ht_perplexity_options;

/* Chunks that a text of n_ids tokens gives under the options. Errors: ARG fewer than one chunk (the numbers are named). */
ht_status ht_perplexity_n_chunks(int64_t n_ids, const ht_perplexity_options* options, int64_t* out, ht_error* err);

/*
 * Score n_models models on the same ids. With has_base the first is the base: the others get KL statistics against it.
 *   names   for messages, one per model
 *   scores  n_models, filled on success
 * All models need the same n_vocab. Errors: ARG; NUMERIC at the first non-finite value (file, chunk, position, id, layer); CANCELLED; NOMEM.
 */
ht_status ht_perplexity_run(const ht_model* const* models, const char* const* names, int n_models, bool has_base, const int32_t* ids, int64_t n_ids,
                            const ht_perplexity_options* options, const ht_ctx* ctx, ht_score* scores, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
