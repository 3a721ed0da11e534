/* Calibration without data: the model writes its own text. */
#ifndef HT_CALIB_SELF_TEXT_H
#define HT_CALIB_SELF_TEXT_H

#include "runtime/model.h"
#include "runtime/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * n_chunks texts of n_ctx tokens, each from an empty cache: BOS (without one, a token drawn from the whole vocabulary), then sampled at temperature 1 from the full
 * distribution. Each chunk has its own stream of random numbers from ctx->seed. *out_ids is malloc'd, n_chunks * n_ctx long, owned by the caller.
 * Errors: those of ht_session_eval; NOMEM.
 */
ht_status ht_self_text(const ht_model* model, const ht_tokenizer* tokenizer, int64_t n_ctx, int64_t n_chunks, const ht_ctx* ctx, int32_t** out_ids, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
