/*
 * A model ready to run, and the sequences that run through it.
 *
 * The weights come from any ht_source: a GGUF as it is, or a HF folder through the same plan (rows are read in their native type, so evaluating a
 * checkpoint needs no F16 file). The architecture is read from metadata keys; one graph serves the families through switches
 * (rope pairing, q/k/v bias, q/k norm, tied output).
 */
#ifndef HT_RUNTIME_MODEL_H
#define HT_RUNTIME_MODEL_H

#include "formats/base/ctx.h"
#include "formats/source.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the numbers mean. EXACT: weights decoded, f32 activations (what the file itself is worth). FAST: quantized kernels, activations
 * rounded to 8 bits (what users of the file see). */
typedef enum ht_compute { HT_COMPUTE_EXACT, HT_COMPUTE_FAST } ht_compute;

typedef struct ht_hparams {
    char    arch[32];
    int64_t n_layers, n_embd, n_ff, n_vocab, n_ctx_train;
    int64_t n_heads, n_heads_kv, head_dim, head_dim_v, n_rot;
    float   norm_rms_eps, rope_freq_base;
    bool    rope_neox;         /* pairs (j, j + n_rot/2); else (2j, 2j + 1)             */
    int64_t sliding_window;    /* 0: none                                               */
} ht_hparams;

typedef struct ht_model ht_model;

/*
 * Loads all weights (resident: about the bytes of the source). The source must outlive the call only.
 * Errors: UNSUPPORTED architecture (named); FORMAT missing key or tensor, wrong shape (expected and found); NOMEM; IO.
 */
ht_status ht_model_load(ht_model** out, const ht_source* source, ht_compute compute, const ht_ctx* ctx, ht_error* err);
void      ht_model_free(ht_model* model);

const ht_hparams* ht_model_hparams(const ht_model* model);
uint64_t          ht_model_weights_bytes(const ht_model* model);         /* resident                                     */
uint64_t          ht_model_bytes_per_token(const ht_model* model);       /* weights read to decode one token             */

/* A sequence: KV cache and activations for up to n_ctx positions. Not thread-safe; the calls use ctx->n_threads threads inside. */
typedef struct ht_session ht_session;

typedef enum ht_kv_type { HT_KV_TYPE_F16, HT_KV_TYPE_F32 } ht_kv_type;

/* A context beyond n_ctx_train is allowed, with a warning to ctx->log. Errors: ARG n_ctx < 1; NOMEM; BOUNDS. */
ht_status ht_session_create(ht_session** out, const ht_model* model, int64_t n_ctx, ht_kv_type kv_type, const ht_ctx* ctx, ht_error* err);
void      ht_session_free(ht_session* session);
void      ht_session_reset(ht_session* session);                  /* forget all positions                               */
int64_t   ht_session_n_past(const ht_session* session);
uint64_t  ht_session_kv_bytes(const ht_session* session);

/*
 * Run n_tokens ids after those already there.
 *   logits        where to put the logits of positions [logits_from, n_tokens): (n_tokens - logits_from) rows of n_vocab f32, or NULL
 * Results do not depend on the thread count. Errors: ARG (context full, id out of range: both numbers), NUMERIC (a non-finite logit:
 * position), CANCELLED.
 */
ht_status ht_session_eval(ht_session* session, const int32_t* ids, int64_t n_tokens, int64_t logits_from, float* logits, ht_error* err);

/*
 * An observer for calibration: called with the inputs of every linear. The runtime does not know what it is for.
 *   x  (n_rows, n_cols) row-major f32, valid during the call; `tensor` the GGUF name of the weight that it will be multiplied with.
 */
typedef void (*ht_tap_fn)(void* user, int64_t layer, const char* tensor, const float* x, int64_t n_rows, int64_t n_cols);
void ht_session_set_tap(ht_session* session, ht_tap_fn tap, void* user);

#ifdef __cplusplus
}
#endif
#endif
