#include "calib/divergence.h"

#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calib/layer_runner.h"

/* Tokens whose logits are held at a time, for base and file. */
enum { BLOCK_TOKENS = 128 };

void ht_mean_and_stderr(const double* values, int64_t n, double* mean, double* stderr_mean)
{
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) { sum += values[i]; }
    *mean = n > 0 ? sum / (double)n : 0.0;
    for (int64_t i = 0; i < n; i++) { squares += (values[i] - *mean) * (values[i] - *mean); }
    *stderr_mean = n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : 0.0;
}

void ht_divergence_deinit(ht_divergence* d)
{
    free(d->each);
    *d = (ht_divergence){ 0 };
}

/* All chunks through all layers: x (n_chunks, n_ctx, n_embd) becomes the states before the last norm. */
static ht_status run_through(const ht_layer_runner* run, const int32_t* ids, int64_t n_chunks, float* x, ht_error* err)
{
    ht_status     st    = HT_STATUS_OK;
    ht_layer_f32  layer = { 0 };
    const int64_t n_x   = run->n_ctx * run->hparams.n_embd;
    float**       chunks = malloc((size_t)n_chunks * sizeof *chunks);
    HT_CHECK(chunks, NOMEM, "chunks");
    for (int64_t k = 0; k < n_chunks; k++) { chunks[k] = x + k * n_x; }
    HT_TRY(ht_layer_runner_embed(run, ids, n_chunks * run->n_ctx, x, err));
    for (int64_t i = 0; i < run->hparams.n_layers; i++) {
        HT_CHECK(!ht_cancelled(run->ctx), CANCELLED, "interrupted");
        HT_TRY(ht_layer_runner_read(run, &layer, i, err));
        HT_TRY(ht_layer_runner_forward(run, &layer, chunks, n_chunks, err));
        ht_layer_deinit(&layer);
    }
    HT_CHECK(ht_find_nonfinite(x, n_chunks * n_x) == n_chunks * n_x, NUMERIC, "the hidden state is not finite after the last layer");
done:
    ht_layer_deinit(&layer);
    free(chunks);
    return st;
}

static ht_status compare(ht_divergence* out, const ht_layer_runner* base, const float* x, const ht_layer_runner* other, const float* y, int64_t n, ht_error* err)
{
    ht_status     st      = HT_STATUS_OK;
    const int64_t n_embd  = base->hparams.n_embd, n_vocab = base->hparams.n_vocab;
    float *       p = malloc((size_t)(BLOCK_TOKENS * n_vocab) * sizeof *p), *q = malloc((size_t)(BLOCK_TOKENS * n_vocab) * sizeof *q);
    out->each = malloc((size_t)n * sizeof *out->each);
    HT_CHECK(p && q && out->each, NOMEM, "logits of %d tokens", BLOCK_TOKENS);
    for (int64_t from = 0; from < n; from += BLOCK_TOKENS) {
        const int64_t m = n - from < BLOCK_TOKENS ? n - from : BLOCK_TOKENS;
        HT_CHECK(!ht_cancelled(base->ctx), CANCELLED, "interrupted");
        HT_TRY(ht_layer_runner_logits(base, x + from * n_embd, m, p, err));
        HT_TRY(ht_layer_runner_logits(other, y + from * n_embd, m, q, err));
        ht_logits_divergence(base, p, q, m, out->each + from);
    }
    ht_mean_and_stderr(out->each, n, &out->mean, &out->stderr_mean);
done:
    free(p);
    free(q);
    return st;
}

ht_status ht_divergence_measure(ht_divergence* out, const ht_source* base, const ht_source* const* files, int n_files, const int32_t* ids, int64_t n_ctx,
                                int64_t n_chunks, const ht_ctx* ctx, ht_error* err)
{
    ht_status       st = HT_STATUS_OK;
    ht_layer_runner one = { 0 }, other = { 0 };
    float *         x = NULL, *y = NULL;
    memset(out, 0, (size_t)n_files * sizeof *out);
    openblas_set_num_threads(1); /* chunks and panels are shared out, not the inside of a product */
    HT_TRY(ht_layer_runner_init(&one, base, n_ctx, 1, ctx, err));
    const size_t n_x = (size_t)(n_chunks * n_ctx * one.hparams.n_embd);
    x = malloc(n_x * sizeof *x);
    y = malloc(n_x * sizeof *y);
    HT_CHECK(x && y, NOMEM, "hidden states of %" PRId64 " tokens", n_chunks * n_ctx);
    HT_TRY(run_through(&one, ids, n_chunks, x, err));
    for (int k = 0; k < n_files; k++) {
        HT_TRY(ht_layer_runner_init(&other, files[k], n_ctx, 1, ctx, err));
        HT_CHECK(other.hparams.n_embd == one.hparams.n_embd && other.hparams.n_vocab == one.hparams.n_vocab, ARG, "%s is another model than %s", ht_source_path(files[k]),
                 ht_source_path(base));
        HT_TRY(run_through(&other, ids, n_chunks, y, err));
        HT_TRY(compare(&out[k], &one, x, &other, y, n_chunks * n_ctx, err));
        ht_layer_runner_deinit(&other);
        ht_progress(ctx, "measuring", (uint64_t)k + 1, (uint64_t)n_files);
    }
done:
    if (other.ctx) { ht_layer_runner_deinit(&other); }
    if (one.ctx) { ht_layer_runner_deinit(&one); }
    free(x);
    free(y);
    for (int k = 0; st != HT_STATUS_OK && k < n_files; k++) { ht_divergence_deinit(&out[k]); }
    return st;
}
