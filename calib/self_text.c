#include "calib/self_text.h"

#include <math.h>
#include <stdlib.h>

static uint64_t random_next(uint64_t* state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int32_t sample(const float* logits, int64_t n, uint64_t* state)
{
    float  max = logits[0];
    double sum = 0.0, at = 0.0;
    for (int64_t i = 1; i < n; i++) { max = logits[i] > max ? logits[i] : max; }
    for (int64_t i = 0; i < n; i++) { sum += exp((double)(logits[i] - max)); }
    const double point = (double)(random_next(state) >> 11) * 0x1p-53 * sum;
    for (int64_t i = 0; i < n; i++) {
        at += exp((double)(logits[i] - max));
        if (at > point) { return (int32_t)i; }
    }
    return (int32_t)(n - 1);
}

ht_status ht_self_text(const ht_model* model, const ht_tokenizer* tokenizer, int64_t n_ctx, int64_t n_chunks, const ht_ctx* ctx, int32_t** out_ids, ht_error* err)
{
    ht_status     st      = HT_STATUS_OK;
    ht_session*   session = NULL;
    const int64_t n_vocab = ht_model_hparams(model)->n_vocab;
    int32_t*      ids     = malloc((size_t)(n_ctx * n_chunks) * sizeof *ids);
    float*        logits  = malloc((size_t)n_vocab * sizeof *logits);
    HT_CHECK(ids && logits, NOMEM, "the model's own text");
    HT_TRY(ht_session_create(&session, model, n_ctx, HT_KV_TYPE_F16, ctx, err));
    for (int64_t k = 0; k < n_chunks; k++) {
        uint64_t state = ctx->seed + 0x5E1Fu + (uint64_t)k * 0x9E3779B97F4A7C15u;
        int32_t* chunk = ids + k * n_ctx;
        ht_session_reset(session);
        chunk[0] = ht_tokenizer_bos(tokenizer) >= 0 ? ht_tokenizer_bos(tokenizer) : (int32_t)(random_next(&state) % (uint64_t)n_vocab);
        for (int64_t t = 0; t + 1 < n_ctx; t++) {
            HT_TRY(ht_session_eval(session, chunk + t, 1, 0, logits, err));
            chunk[t + 1] = sample(logits, n_vocab, &state);
        }
        ht_progress(ctx, "writing its own text", (uint64_t)(k + 1), (uint64_t)n_chunks);
    }
    *out_ids = ids;
    ids      = NULL;
done:
    ht_session_free(session);
    free(ids);
    free(logits);
    return st;
}
