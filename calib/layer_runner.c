#include "calib/layer_runner.h"

#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

ht_status ht_read_matrix(float** out, const ht_source* source, const char* name, bool required, int64_t n_cols, ht_error* err)
{
    ht_status               st = HT_STATUS_OK;
    const ht_source_tensor* t  = ht_source_find_tensor(source, name);
    *out = NULL;
    HT_CHECK(t || !required, FORMAT, "this tensor is missing");
    if (!t) { return st; }
    HT_CHECK(t->info.ne[0] == n_cols, FORMAT, "rows of %" PRId64 " values, expected %" PRId64, t->info.ne[0], n_cols);
    *out = malloc((size_t)ht_tensor_n_elems(&t->info) * sizeof **out);
    HT_CHECK(*out, NOMEM, "%" PRId64 " weights", ht_tensor_n_elems(&t->info));
    HT_TRY(ht_source_read_rows_f32(source, t, 0, ht_tensor_n_rows(&t->info), *out, err));
done:
    if (st != HT_STATUS_OK) { ht_error_set_tensor(err, name); }
    return st;
}

ht_status ht_layer_runner_init(ht_layer_runner* run, const ht_source* source, int64_t n_ctx, int64_t n_members, const ht_ctx* ctx, ht_error* err)
{
    ht_status               st      = HT_STATUS_OK;
    ht_hparams*             h       = &run->hparams;
    float*                  factors = NULL;
    const ht_source_tensor* embd    = ht_source_find_tensor(source, "token_embd.weight");
    const bool              is_tied = ht_source_find_tensor(source, "output.weight") == NULL;
    *run = (ht_layer_runner){ .source = source, .ctx = ctx, .n_ctx = n_ctx, .n_members = n_members > ctx->n_threads ? n_members : ctx->n_threads,
                              .output_name = is_tied ? "token_embd.weight" : "output.weight" };
    HT_TRY(ht_hparams_read(h, &run->family, ht_source_meta(source), err));
    HT_CHECK(embd && embd->info.ne[0] == h->n_embd, FORMAT, "token_embd.weight is missing or has rows of another length than %" PRId64, h->n_embd);
    HT_CHECK(h->head_dim <= 1024 && h->head_dim_v <= 1024, UNSUPPORTED, "heads of %" PRId64 " dimensions", h->head_dim);
    h->n_vocab = embd->info.ne[1];
    HT_TRY(ht_read_matrix(&factors, source, "rope_freqs.weight", false, h->n_rot / 2, err));
    HT_TRY(ht_rope_init(&run->rope, ht_source_meta(source), h->arch, h->n_rot, h->rope_neox, h->rope_freq_base, factors, err));
    HT_TRY(ht_read_matrix(&run->output_norm, source, "output_norm.weight", true, h->n_embd, err));
    run->ops    = ht_graph_ops_get(ht_cpu_features() & ht_isa_features(ctx->isa));
    run->inputs = malloc((size_t)(run->n_members * n_ctx * (2 * h->n_embd + h->n_heads * h->head_dim_v + h->n_ff)) * sizeof *run->inputs);
    run->spaces = calloc((size_t)ctx->n_threads, sizeof *run->spaces);
    HT_CHECK(run->inputs && run->spaces, NOMEM, "activations of %" PRId64 " tokens", run->n_members * n_ctx);
    for (int k = 0; k < ctx->n_threads; k++) { HT_TRY(ht_layer_space_init(&run->spaces[k], h, &run->rope, n_ctx, err)); }
done:
    free(factors);
    return st;
}

void ht_layer_runner_deinit(ht_layer_runner* run)
{
    for (int k = 0; run->spaces && k < run->ctx->n_threads; k++) { ht_layer_space_deinit(&run->spaces[k]); }
    ht_rope_deinit(&run->rope);
    free(run->output_norm);
    free(run->inputs);
    free(run->spaces);
    *run = (ht_layer_runner){ 0 };
}

ht_layer_space* ht_layer_runner_space(const ht_layer_runner* run, int thread, int64_t member)
{
    const ht_hparams* h = &run->hparams;
    ht_layer_space*   s = &run->spaces[thread];
    const int64_t     group = run->n_members * run->n_ctx, at = member * run->n_ctx, n_attended = h->n_heads * h->head_dim_v;
    s->h1 = run->inputs + at * h->n_embd;
    s->h2 = run->inputs + group * h->n_embd + at * h->n_embd;
    s->a  = run->inputs + group * 2 * h->n_embd + at * n_attended;
    s->f  = run->inputs + group * (2 * h->n_embd + n_attended) + at * h->n_ff;
    return s;
}

ht_status ht_layer_runner_read(const ht_layer_runner* run, ht_layer_f32* layer, int64_t index, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    ht_layer_describe(layer, &run->hparams, index);
    layer->ops  = run->ops;
    layer->rope = &run->rope;
    HT_TRY(ht_hparams_window(&run->hparams, ht_source_meta(run->source), index, &layer->window, err));
    HT_TRY(ht_layer_read(layer, run->source, index, run->ctx->n_threads, err));
done:
    return st;
}

ht_status ht_layer_runner_embed(const ht_layer_runner* run, const int32_t* ids, int64_t n, float* x, ht_error* err)
{
    const ht_source_tensor* t = ht_source_find_tensor(run->source, "token_embd.weight");
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= run->hparams.n_vocab) {
            return ht_fail(err, HT_STATUS_ARG, "token id %" PRId32 " is outside the vocabulary of %" PRId64, ids[i], run->hparams.n_vocab);
        }
        const ht_status st = ht_source_read_rows_f32(run->source, t, ids[i], 1, x + i * run->hparams.n_embd, err);
        if (st != HT_STATUS_OK) { return st; }
    }
    return HT_STATUS_OK;
}

ht_status ht_layer_runner_forward(const ht_layer_runner* run, const ht_layer_f32* layer, float* const* x, int64_t n_chunks, ht_error* err)
{
    const size_t n_x       = (size_t)(run->n_ctx * run->hparams.n_embd);
    bool         no_memory = false;
#pragma omp parallel num_threads(run->ctx->n_threads)
    {
        float* y = malloc(n_x * sizeof *y);
#pragma omp for schedule(dynamic, 1)
        for (int64_t k = 0; k < n_chunks; k++) {
            if (!y) {
#pragma omp atomic write
                no_memory = true;
                continue;
            }
            ht_layer_forward(layer, ht_layer_runner_space(run, omp_get_thread_num(), omp_get_thread_num()), x[k], y);
            memcpy(x[k], y, n_x * sizeof *y);
        }
        free(y);
    }
    return no_memory ? ht_fail(err, HT_STATUS_NOMEM, "activations") : HT_STATUS_OK;
}

/* --- predictions -------------------------------------------------------------------------------------------------------------------------- */

ht_status ht_layer_runner_logits(const ht_layer_runner* run, const float* x, int64_t n, float* logits, ht_error* err)
{
    enum { PANEL = 512 };
    ht_status               st = HT_STATUS_OK;
    const ht_hparams*       h  = &run->hparams;
    const ht_source_tensor* t  = ht_source_find_tensor(run->source, run->output_name);
    ht_error                failure = HT_ERROR_INIT;
    float*                  normed  = malloc((size_t)(n * h->n_embd) * sizeof *normed);
    HT_CHECK(normed, NOMEM, "states of %" PRId64 " tokens", n);
    HT_CHECK(t->info.ne[0] == h->n_embd && t->info.ne[1] == h->n_vocab, FORMAT, "%s is not %" PRId64 " x %" PRId64, run->output_name, h->n_embd, h->n_vocab);
    for (int64_t k = 0; k < n; k++) { run->ops->rms_norm(x + k * h->n_embd, run->output_norm, h->norm_rms_eps, h->n_embd, normed + k * h->n_embd); }
#pragma omp parallel num_threads(run->ctx->n_threads)
    {
        float* panel = malloc((size_t)(PANEL * h->n_embd) * sizeof *panel);
#pragma omp for schedule(dynamic, 1)
        for (int64_t from = 0; from < h->n_vocab; from += PANEL) {
            const int64_t rows = h->n_vocab - from < PANEL ? h->n_vocab - from : PANEL;
            ht_error      e    = HT_ERROR_INIT;
            if (!panel) { (void)ht_fail(&e, HT_STATUS_NOMEM, "a panel of %s", run->output_name); }
            else if (ht_source_read_rows_f32(run->source, t, from, rows, panel, &e) == HT_STATUS_OK) {
                cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)rows, (int)h->n_embd, 1.0f, normed, (int)h->n_embd, panel, (int)h->n_embd, 0.0f,
                            logits + from, (int)h->n_vocab);
                continue;
            }
#pragma omp critical(ht_logits_failure)
            failure = e;
        }
        free(panel);
    }
    if (failure.status != HT_STATUS_OK) {
        st = failure.status;
        if (err) { *err = failure; }
    }
done:
    free(normed);
    return st;
}

/* sum over the vocabulary of p (z - w), less the difference of the logarithms of the sums */
void ht_logits_divergence(const ht_layer_runner* run, float* p, const float* q, int64_t n, double* kl)
{
    enum { LANES = 8 };
    const int64_t n_vocab = run->hparams.n_vocab;
#pragma omp parallel for schedule(static) num_threads(run->ctx->n_threads)
    for (int64_t t = 0; t < n; t++) {
        float*       z = p + t * n_vocab;
        const float* w = q + t * n_vocab;
        float        max_z = 0.0f, max_w = 0.0f;
        double       log_z = 0.0, log_w = 0.0, sum[LANES] = { 0.0 }, total = 0.0;
        run->ops->log_sum_exp(z, n_vocab, &max_z, &log_z);
        run->ops->log_sum_exp(w, n_vocab, &max_w, &log_w);
        const double lse_z = (double)max_z + log_z, lse_w = (double)max_w + log_w, shift = lse_z - lse_w;
        enum { BLOCK = 512 };
        float difference[BLOCK];
        for (int64_t from = 0; from < n_vocab; from += BLOCK) {
            const int64_t m = n_vocab - from < BLOCK ? n_vocab - from : BLOCK;
            for (int64_t i = 0; i < m; i++) { difference[i] = z[from + i] - w[from + i]; }
            ht_exp_shifted(z + from, m, (float)lse_z);
            for (int64_t i = 0; i < m; i++) { sum[i % LANES] += (double)z[from + i] * ((double)difference[i] - shift); }
        }
        for (int k = 0; k < LANES; k++) { total += sum[k]; }
        kl[t] = total;
    }
}

double ht_layer_flops(const ht_hparams* h, int64_t n_tokens, int64_t n_ctx)
{
    const double linears = (double)h->n_embd * (double)(h->n_heads * h->head_dim + h->n_heads_kv * (h->head_dim + h->head_dim_v) + h->n_heads * h->head_dim_v + 3 * h->n_ff);
    return 2.0 * (double)n_tokens * (linears + (double)n_ctx * (double)(h->n_heads * (h->head_dim + h->head_dim_v)));
}

int64_t ht_find_nonfinite(const float* x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) { return i; }
    }
    return n;
}
