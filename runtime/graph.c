/*
 * One pass of a batch through the layers:
 *
 *   x = token_embd[ids]
 *   per layer:   h = rms_norm(x);  q, k, v = W h (+ b);  [rms_norm of each q and k head];  rope(q, k);  cache <- k, v
 *                x += W_output attend(q, cache);   h = rms_norm(x);   x += W_down (silu(W_gate h) * W_up h)
 *   logits = W_output rms_norm(x)
 *
 * Long inputs go through in batches of BATCH tokens, so that activations stay small and decoded weights serve many tokens. Threads share the
 * work by rows of matrices, by tokens, and by (kv head, a few queries) in attention; every item is computed by one thread in one fixed order, so
 * the thread count changes nothing.
 */
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "formats/decode.h"
#include "runtime/kv_cache.h"
#include "runtime/model_impl.h"

enum {
    BATCH       = 512, /* tokens                                                                                        */
    TILE_ROWS   = 32,  /* (query, head) rows that share a widened step of keys: enough to pay for it, few enough for L1/L2 */
    MAX_JOBS    = 3
};

struct ht_session {
    const ht_model* model;
    ht_ctx          ctx;
    ht_kv_cache     cache;
    int64_t         n_past;
    ht_tap_fn       tap;
    void*           tap_user;
    /* activations of a batch of n_batch tokens, row-major, one block */
    int64_t         n_batch;
    float*          block;
    float *         x, *h, *q, *k, *v, *attended, *gate, *up, *rope_tables;
    float*          attend_scratch;  /* per thread: attend_scratch_floats */
    size_t          attend_scratch_floats;
    void*           matmul_scratch;
};

static int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t tile_queries(const ht_hparams* h) { return max_i64(1, TILE_ROWS / (h->n_heads / h->n_heads_kv)); }

ht_status ht_session_create(ht_session** out, const ht_model* model, int64_t n_ctx, ht_kv_type kv_type, const ht_ctx* ctx, ht_error* err)
{
    ht_status         st = HT_STATUS_OK;
    const ht_hparams* h  = &model->hparams;
    ht_session*       s  = calloc(1, sizeof *s);
    HT_CHECK(s, NOMEM, "session");
    if (n_ctx > h->n_ctx_train) {
        ht_log_warn(&ctx->log, "a context of %" PRId64 " tokens is beyond the %" PRId64 " that the model was made for", n_ctx, h->n_ctx_train);
    }
    s->model = model;
    s->ctx   = *ctx;
    HT_TRY(ht_kv_cache_init(&s->cache, h, n_ctx, kv_type, err));
    s->n_batch = min_i64(BATCH, n_ctx);

    const int64_t n_attended = h->n_heads * h->head_dim_v;
    const struct { float** to; int64_t width; } parts[] = {
        { &s->x, h->n_embd },      { &s->h, max_i64(h->n_embd, n_attended) }, { &s->q, h->n_heads * h->head_dim },
        { &s->k, h->n_heads_kv * h->head_dim }, { &s->v, h->n_heads_kv * h->head_dim_v }, { &s->attended, n_attended },
        { &s->gate, h->n_ff },     { &s->up, h->n_ff },                       { &s->rope_tables, h->n_rot },
    };
    enum { N_PARTS = sizeof parts / sizeof *parts };
    size_t n_floats = 0, at = 0;
    for (int i = 0; i < N_PARTS; i++) { n_floats += ((size_t)(parts[i].width * s->n_batch) + 15) / 16 * 16; }

    ht_attend shape = { .group = h->n_heads / h->n_heads_kv };
    ht_kv_cache_view(&s->cache, 0, 0, &shape);
    s->attend_scratch_floats = (ht_attend_scratch(&shape, tile_queries(h)) + 15) / 16 * 16;
    const int64_t widest        = max_i64(max_i64(h->n_embd, h->n_ff), n_attended);
    const size_t  matmul_bytes  = (ht_matmul_scratch_bytes(widest, s->n_batch, ctx->n_threads) + 63) / 64 * 64;
    const size_t  attend_floats = s->attend_scratch_floats * (size_t)ctx->n_threads;
    s->block          = aligned_alloc(64, (n_floats + attend_floats) * sizeof(float));
    s->matmul_scratch = aligned_alloc(64, matmul_bytes);
    HT_CHECK(s->block && s->matmul_scratch, NOMEM, "activations of %" PRId64 " tokens", s->n_batch);
    for (int i = 0; i < N_PARTS; i++) {
        *parts[i].to = s->block + at;
        at += ((size_t)(parts[i].width * s->n_batch) + 15) / 16 * 16;
    }
    s->attend_scratch = s->block + at;
    *out = s;
    s    = NULL;
done:
    ht_session_free(s);
    return st;
}

void ht_session_free(ht_session* s)
{
    if (!s) { return; }
    ht_kv_cache_deinit(&s->cache);
    free(s->block);
    free(s->matmul_scratch);
    free(s);
}

void     ht_session_reset(ht_session* s) { s->n_past = 0; }
int64_t  ht_session_n_past(const ht_session* s) { return s->n_past; }
uint64_t ht_session_kv_bytes(const ht_session* s) { return s->cache.n_bytes; }

void ht_session_set_tap(ht_session* s, ht_tap_fn tap, void* user)
{
    s->tap      = tap;
    s->tap_user = user;
}

/* --- steps of a layer ---------------------------------------------------------------------------------------------------- */

/* y[i] = linears[i] x: all read the same input. The tap sees the input first, once per weight. */
static void apply_linears(ht_session* s, int64_t layer, const ht_linear* const* linears, float* const* y, int n, const float* x, int64_t n_tokens)
{
    ht_matmul_job jobs[MAX_JOBS];
    for (int i = 0; i < n; i++) {
        if (s->tap) { s->tap(s->tap_user, layer, linears[i]->name, x, n_tokens, linears[i]->w.n_cols); }
        jobs[i] = (ht_matmul_job){ &linears[i]->w, y[i] };
    }
    ht_matmul(&s->model->kernels, s->model->compute, jobs, n, x, n_tokens, s->matmul_scratch, s->ctx.n_threads);
    for (int i = 0; i < n; i++) {
        const int64_t n_rows = linears[i]->w.n_rows;
        for (int64_t t = 0; linears[i]->bias && t < n_tokens; t++) {
            for (int64_t r = 0; r < n_rows; r++) { y[i][t * n_rows + r] += linears[i]->bias[r]; }
        }
    }
}

static void norm_tokens(const ht_session* s, const float* x, const float* weight, int64_t n_tokens, float* y)
{
    const ht_hparams* h = &s->model->hparams;
#pragma omp parallel for schedule(static) num_threads(s->ctx.n_threads) if (n_tokens > 1)
    for (int64_t t = 0; t < n_tokens; t++) { s->model->ops->rms_norm(x + t * h->n_embd, weight, h->norm_rms_eps, h->n_embd, y + t * h->n_embd); }
}

/* Norm and rope of every head of a token; scale of the queries; keys and values into the cache. */
static void place_token(ht_session* s, int64_t layer, int64_t t)
{
    const ht_hparams* h     = &s->model->hparams;
    const ht_layer*   l     = &s->model->layers[layer];
    const float*      table = s->rope_tables + t * h->n_rot;
    const float       scale = 1.0f / sqrtf((float)h->head_dim);
    for (int64_t i = 0; i < h->n_heads; i++) {
        float* q = s->q + (t * h->n_heads + i) * h->head_dim;
        if (l->attn_q_norm) { s->model->ops->rms_norm(q, l->attn_q_norm, h->norm_rms_eps, h->head_dim, q); }
        ht_rope_turn(&s->model->rope, table, q);
        for (int64_t d = 0; d < h->head_dim; d++) { q[d] *= scale; }
    }
    for (int64_t i = 0; i < h->n_heads_kv; i++) {
        float* k = s->k + (t * h->n_heads_kv + i) * h->head_dim;
        if (l->attn_k_norm) { s->model->ops->rms_norm(k, l->attn_k_norm, h->norm_rms_eps, h->head_dim, k); }
        ht_rope_turn(&s->model->rope, table, k);
        ht_kv_cache_put(&s->cache, layer, i, s->n_past + t, k, s->v + (t * h->n_heads_kv + i) * h->head_dim_v);
    }
}

static void attend_all(ht_session* s, int64_t layer, int64_t n_tokens)
{
    const ht_hparams* h       = &s->model->hparams;
    const int64_t     group   = h->n_heads / h->n_heads_kv;
    const int64_t     tile    = tile_queries(h), n_tiles = (n_tokens + tile - 1) / tile;
#pragma omp parallel num_threads(s->ctx.n_threads)
    {
#pragma omp for schedule(static)
        for (int64_t t = 0; t < n_tokens; t++) { place_token(s, layer, t); }
#pragma omp for schedule(dynamic) nowait
        for (int64_t item = 0; item < n_tiles * h->n_heads_kv; item++) {
            const int64_t head = item % h->n_heads_kv, from = (n_tiles - 1 - item / h->n_heads_kv) * tile; /* the longest first */
            ht_attend     a    = { .q = s->q + head * group * h->head_dim, .out = s->attended + head * group * h->head_dim_v,
                                   .q_stride = h->n_heads * h->head_dim, .out_stride = h->n_heads * h->head_dim_v, .n_past = s->n_past,
                                   .window = s->model->layers[layer].window, .group = group };
            ht_kv_cache_view(&s->cache, layer, head, &a);
            s->model->ops->attend(&a, from, min_i64(from + tile, n_tokens),
                                  s->attend_scratch + (size_t)omp_get_thread_num() * s->attend_scratch_floats);
        }
    }
}

static void add_to(float* x, const float* y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) { x[i] += y[i]; }
}

static void run_layer(ht_session* s, int64_t layer, int64_t n_tokens)
{
    const ht_hparams* h = &s->model->hparams;
    const ht_layer*   l = &s->model->layers[layer];
    norm_tokens(s, s->x, l->attn_norm, n_tokens, s->h);
    apply_linears(s, layer, (const ht_linear*[]){ &l->attn_q, &l->attn_k, &l->attn_v }, (float*[]){ s->q, s->k, s->v }, 3, s->h, n_tokens);
    attend_all(s, layer, n_tokens);
    apply_linears(s, layer, (const ht_linear*[]){ &l->attn_output }, (float*[]){ s->h }, 1, s->attended, n_tokens);
    add_to(s->x, s->h, n_tokens * h->n_embd);

    norm_tokens(s, s->x, l->ffn_norm, n_tokens, s->h);
    apply_linears(s, layer, (const ht_linear*[]){ &l->ffn_gate, &l->ffn_up }, (float*[]){ s->gate, s->up }, 2, s->h, n_tokens);
#pragma omp parallel for schedule(static) num_threads(s->ctx.n_threads) if (n_tokens > 1)
    for (int64_t t = 0; t < n_tokens; t++) { s->model->ops->silu_mul(s->gate + t * h->n_ff, s->up + t * h->n_ff, h->n_ff); }
    apply_linears(s, layer, (const ht_linear*[]){ &l->ffn_down }, (float*[]){ s->h }, 1, s->gate, n_tokens);
    add_to(s->x, s->h, n_tokens * h->n_embd);
}

/* --- a batch --------------------------------------------------------------------------------------------------------------- */

/* Index of the first NaN or Inf, or n. The exponent test is on bits, so that the common case is one vectorised sweep. */
static int64_t find_nonfinite(const float* x, int64_t n)
{
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        any |= (bits & 0x7F800000u) == 0x7F800000u;
    }
    for (int64_t i = 0; any && i < n; i++) {
        if (!isfinite(x[i])) { return i; }
    }
    return n;
}

static ht_status run_batch(ht_session* s, const int32_t* ids, int64_t n_tokens, int64_t logits_from, float* logits, ht_error* err)
{
    const ht_model*        m      = s->model;
    const ht_hparams*      h      = &m->hparams;
    const ht_decode_row_fn decode = ht_decode_row_get(m->token_embd.type);
    for (int64_t t = 0; t < n_tokens; t++) {
        decode((const char*)m->token_embd.data + (size_t)ids[t] * m->token_embd.row_bytes, s->x + t * h->n_embd, h->n_embd);
        ht_rope_fill(&m->rope, s->n_past + t, s->rope_tables + t * h->n_rot);
    }
    for (int64_t layer = 0; layer < h->n_layers; layer++) {
        if (ht_cancelled(&s->ctx)) { return ht_fail(err, HT_STATUS_CANCELLED, "interrupted"); }
        run_layer(s, layer, n_tokens);
        const int64_t bad = find_nonfinite(s->x, n_tokens * h->n_embd) / h->n_embd;
        if (bad < n_tokens) {
            return ht_fail(err, HT_STATUS_NUMERIC, "position %" PRId64 " (token id %" PRId32 "): not finite after layer %" PRId64, s->n_past + bad,
                           ids[bad], layer);
        }
    }
    if (logits && logits_from < n_tokens) {
        const int64_t n_rows = n_tokens - logits_from;
        norm_tokens(s, s->x + logits_from * h->n_embd, m->output_norm, n_rows, s->h);
        apply_linears(s, h->n_layers, (const ht_linear*[]){ &m->output }, (float*[]){ logits }, 1, s->h, n_rows);
        const int64_t bad = find_nonfinite(logits, n_rows * h->n_vocab) / h->n_vocab;
        if (bad < n_rows) {
            return ht_fail(err, HT_STATUS_NUMERIC, "position %" PRId64 " (token id %" PRId32 "): a logit is not finite", s->n_past + logits_from + bad,
                           ids[logits_from + bad]);
        }
    }
    s->n_past += n_tokens;
    return HT_STATUS_OK;
}

ht_status ht_session_eval(ht_session* s, const int32_t* ids, int64_t n_tokens, int64_t logits_from, float* logits, ht_error* err)
{
    const ht_hparams* h    = &s->model->hparams;
    const int64_t     past = s->n_past;
    ht_status         st   = HT_STATUS_OK;
    HT_CHECK(n_tokens >= 0 && n_tokens <= s->cache.n_ctx - past, ARG, "%" PRId64 " tokens after %" PRId64 " do not fit a context of %" PRId64, n_tokens,
             past, s->cache.n_ctx);
    for (int64_t t = 0; t < n_tokens; t++) {
        HT_CHECK(ids[t] >= 0 && ids[t] < h->n_vocab, ARG, "token id %" PRId32 " at position %" PRId64 " is outside the vocabulary of %" PRId64, ids[t],
                 past + t, h->n_vocab);
    }
    for (int64_t t = 0; t < n_tokens; t += s->n_batch) {
        const int64_t n    = min_i64(s->n_batch, n_tokens - t);
        const int64_t from = max_i64(0, logits_from - t);
        HT_TRY(run_batch(s, ids + t, n, from, logits ? logits + max_i64(0, t - logits_from) * h->n_vocab : NULL, err));
    }
done:
    if (st != HT_STATUS_OK) { s->n_past = past; }
    return st;
}
