#include "runtime/perplexity.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/kernels/graph_ops.h"

/* Rows of logits kept per model at a time: 64 MiB of them. More gains nothing, less makes exact compute decode the weights more often. */
enum { LOGITS_BYTES = 64 << 20 };

/* One scored position, and what is known of the model's distribution there. */
typedef struct position {
    double nll, p_token;
    float  max;
    double log_sum; /* log sum exp(x - max) */
    double kl;
    bool   same_top1;
} position;

typedef struct run {
    const ht_model* const*       models;
    const char* const*           names;
    int                          n_models;
    bool                         has_base;
    const ht_perplexity_options* options;
    const ht_ctx*                ctx;
    const ht_graph_ops*          ops;
    int64_t                      n_vocab, n_batch, n_chunks, n_per_chunk;
    ht_session**                 sessions;
    int32_t*                     chunk;
    float*                       logits[2];  /* n_batch rows of n_vocab: of the base, and of the model at work */
    position*                    base;       /* n_batch */
    position*                    work;       /* n_batch */
    double**                     nll;        /* per model, every score in order */
    double**                     kl;
    double*                      sum_dp2;    /* per model */
    int64_t*                     n_same;
    double*                      wall_s;
    int64_t                      n_scored;
} run;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

ht_status ht_perplexity_n_chunks(int64_t n_ids, const ht_perplexity_options* options, int64_t* out, ht_error* err)
{
    const int64_t n = options->n_ctx >= 4 ? n_ids / options->n_ctx : 0;
    if (options->n_ctx < 4) { return ht_fail(err, HT_STATUS_ARG, "--ctx %" PRId64 " is too small (4 and up)", options->n_ctx); }
    if (n < 1) { return ht_fail(err, HT_STATUS_ARG, "the text has %" PRId64 " tokens, one chunk needs %" PRId64, n_ids, options->n_ctx); }
    if (options->n_chunks > n) {
        return ht_fail(err, HT_STATUS_ARG, "%" PRId64 " chunks of %" PRId64 " tokens asked, the text of %" PRId64 " tokens holds %" PRId64,
                       options->n_chunks, options->n_ctx, n_ids, n);
    }
    *out = options->n_chunks > 0 ? options->n_chunks : n;
    return HT_STATUS_OK;
}

/* --- one row of logits ------------------------------------------------------------------------------------------------------ */

static int64_t arg_max(const float* x, int64_t n, float max)
{
    for (int64_t i = 0; i < n; i++) {
        if (x[i] == max) { return i; }
    }
    return -1;
}

static void score_row(const run* r, const float* x, int32_t token, position* p)
{
    r->ops->log_sum_exp(x, r->n_vocab, &p->max, &p->log_sum);
    const double log_p = (double)x[token] - (double)p->max - p->log_sum;
    p->nll       = -log_p;
    p->p_token   = exp(log_p);
}

/* KL(base || file) = sum_v p_base(v) (log p_base(v) - log p_file(v)) */
static void compare_rows(const run* r, const float* base, const position* b, const float* x, position* p)
{
    double       sum_p = 0.0, sum_pd = 0.0;
    const double shift = ((double)b->max + b->log_sum) - ((double)p->max + p->log_sum);
    const float  near  = (float)shift; /* taken off inside the sum, so that the terms are small; the rest of it afterwards */
    r->ops->kl_sums(base, x, r->n_vocab, b->max, near, &sum_p, &sum_pd);
    p->kl        = fmax(0.0, sum_pd / sum_p - (shift - (double)near));
    p->same_top1 = arg_max(base, r->n_vocab, b->max) == arg_max(x, r->n_vocab, p->max);
}

/* Forward pass from `first` on; a failure says in which chunk (counted from 1). */
static ht_status eval_tokens(run* r, int m, int64_t chunk, int64_t first, int64_t n, float* logits, ht_error* err)
{
    ht_error        inner = HT_ERROR_INIT;
    const ht_status st    = ht_session_eval(r->sessions[m], r->chunk + first, n, logits ? 0 : n, logits, &inner);
    return st == HT_STATUS_OK ? st : ht_fail(err, st, "chunk %" PRId64 " of %" PRId64 ": %s", chunk + 1, r->n_chunks, inner.message);
}

/* --- a batch of positions of one model ----------------------------------------------------------------------------------------- */

static ht_status score_batch(run* r, int m, int64_t chunk, int64_t first, int64_t n, ht_error* err)
{
    ht_status    st      = HT_STATUS_OK;
    const bool   is_base = r->has_base && m == 0;
    float*       logits  = r->logits[is_base ? 0 : 1];
    position*    out     = is_base ? r->base : r->work;
    const double start   = now_s();
    HT_TRY(eval_tokens(r, m, chunk, first, n, logits, err));
#pragma omp parallel for num_threads(r->ctx->n_threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const float* x = logits + i * r->n_vocab;
        out[i]         = (position){ 0 };
        score_row(r, x, r->chunk[first + i + 1], &out[i]);
        if (r->has_base && !is_base) { compare_rows(r, r->logits[0] + i * r->n_vocab, &r->base[i], x, &out[i]); }
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = r->n_scored + i;
        r->nll[m][at] = out[i].nll;
        if (!r->has_base || is_base) { continue; }
        const double dp = out[i].p_token - r->base[i].p_token;
        r->kl[m][at]    = out[i].kl;
        r->sum_dp2[m] += dp * dp;
        r->n_same[m] += out[i].same_top1;
    }
    r->wall_s[m] += now_s() - start;
done:
    return st;
}

static ht_status run_chunk(run* r, const int32_t* ids, int64_t chunk, ht_error* err)
{
    ht_status     st      = HT_STATUS_OK;
    const int64_t n_ctx   = r->options->n_ctx;
    const int64_t n_first = n_ctx / 2;
    int           m       = 0;
    memcpy(r->chunk, ids + chunk * n_ctx, (size_t)n_ctx * sizeof *ids);
    if (r->options->bos >= 0) { r->chunk[0] = r->options->bos; }
    for (m = 0; m < r->n_models; m++) {
        const double start = now_s();
        ht_session_reset(r->sessions[m]);
        HT_TRY(eval_tokens(r, m, chunk, 0, n_first, NULL, err));
        r->wall_s[m] += now_s() - start;
    }
    for (int64_t first = n_first; first < n_ctx - 1; first += r->n_batch) {
        const int64_t n = n_ctx - 1 - first < r->n_batch ? n_ctx - 1 - first : r->n_batch;
        for (m = 0; m < r->n_models; m++) { HT_TRY(score_batch(r, m, chunk, first, n, err)); }
        r->n_scored += n;
    }
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, r->names[m]); }
    return st;
}

/* --- statistics ------------------------------------------------------------------------------------------------------------------ */

static int by_value(const void* a, const void* b)
{
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

/* Linear between the two nearest of n sorted values. */
static double percentile(const double* sorted, int64_t n, double share)
{
    const double  at    = share * (double)(n - 1);
    const int64_t below = (int64_t)at;
    const int64_t above = below + 1 < n ? below + 1 : below;
    return sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
}

/* Mean and its standard error (NaN for one value). */
static void mean_of(const double* x, int64_t n, double* mean, double* std_error)
{
    double sum = 0.0, sum_sq = 0.0;
    for (int64_t i = 0; i < n; i++) { sum += x[i]; }
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) { sum_sq += (x[i] - *mean) * (x[i] - *mean); }
    *std_error = n > 1 ? sqrt(sum_sq / (double)n / (double)(n - 1)) : (double)NAN;
}

static void summarise(const run* r, int m, ht_score* s)
{
    double    std_error = 0.0;
    const int64_t n     = r->n_scored;
    *s = (ht_score){ .n_scored = n, .wall_s = r->wall_s[m] };
    mean_of(r->nll[m], n, &s->nll_mean, &std_error);
    s->perplexity        = exp(s->nll_mean);
    s->perplexity_stderr = r->n_chunks > 1 ? s->perplexity * std_error : (double)NAN;
    s->tokens_per_s      = s->wall_s > 0.0 ? (double)(n / r->n_per_chunk * (r->options->n_ctx - 1)) / s->wall_s : 0.0;
    if (!r->has_base || m == 0) { return; }
    s->has_kl = true;
    mean_of(r->kl[m], n, &s->kl_mean, &s->kl_mean_stderr);
    qsort(r->kl[m], (size_t)n, sizeof(double), by_value);
    s->kl_median = percentile(r->kl[m], n, 0.5);
    s->kl_p99    = percentile(r->kl[m], n, 0.99);
    s->kl_p999   = percentile(r->kl[m], n, 0.999);
    s->kl_max    = r->kl[m][n - 1];
    s->same_top1 = (double)r->n_same[m] / (double)n;
    s->rms_dp    = sqrt(r->sum_dp2[m] / (double)n);
}

/* --- the whole run ------------------------------------------------------------------------------------------------------------------ */

static void run_deinit(run* r)
{
    for (int m = 0; m < r->n_models; m++) {
        if (r->sessions) { ht_session_free(r->sessions[m]); }
        if (r->nll) { free(r->nll[m]); }
        if (r->kl) { free(r->kl[m]); }
    }
    free(r->sessions);
    free(r->nll);
    free(r->kl);
    free(r->chunk);
    free(r->logits[0]);
    free(r->logits[1]);
    free(r->base);
    free(r->work);
    free(r->sum_dp2);
    free(r->n_same);
    free(r->wall_s);
}

static ht_status run_init(run* r, ht_error* err)
{
    ht_status    st        = HT_STATUS_OK;
    const size_t n_models  = (size_t)r->n_models;
    const size_t n_scores  = (size_t)(r->n_chunks * r->n_per_chunk);
    int64_t      n_batch   = LOGITS_BYTES / (r->n_vocab * (int64_t)sizeof(float));
    r->n_batch  = n_batch < 16 ? 16 : n_batch > r->n_per_chunk ? r->n_per_chunk : n_batch;
    r->sessions = calloc(n_models, sizeof(ht_session*));
    r->nll      = calloc(n_models, sizeof(double*));
    r->kl       = calloc(n_models, sizeof(double*));
    r->sum_dp2  = calloc(n_models, sizeof(double));
    r->n_same   = calloc(n_models, sizeof(int64_t));
    r->wall_s   = calloc(n_models, sizeof(double));
    r->chunk    = malloc((size_t)r->options->n_ctx * sizeof(int32_t));
    r->base     = calloc((size_t)r->n_batch, sizeof(position));
    r->work     = calloc((size_t)r->n_batch, sizeof(position));
    for (int i = r->has_base ? 0 : 1; i < 2; i++) {
        r->logits[i] = malloc((size_t)(r->n_batch * r->n_vocab) * sizeof(float));
        HT_CHECK(r->logits[i], NOMEM, "%" PRId64 " rows of logits", r->n_batch);
    }
    HT_CHECK(r->sessions && r->nll && r->kl && r->sum_dp2 && r->n_same && r->wall_s && r->chunk && r->base && r->work, NOMEM, "evaluation");
    for (size_t m = 0; m < n_models; m++) {
        r->nll[m] = malloc(n_scores * sizeof(double));
        r->kl[m]  = malloc(n_scores * sizeof(double));
        HT_CHECK(r->nll[m] && r->kl[m], NOMEM, "%zu scores", n_scores);
        HT_TRY(ht_session_create(&r->sessions[m], r->models[m], r->options->n_ctx, r->options->kv_type, r->ctx, err));
    }
done:
    return st;
}

ht_status ht_perplexity_run(const ht_model* const* models, const char* const* names, int n_models, bool has_base, const int32_t* ids, int64_t n_ids,
                            const ht_perplexity_options* options, const ht_ctx* ctx, ht_score* scores, ht_error* err)
{
    ht_status st       = HT_STATUS_OK;
    run       r        = { .models = models, .names = names, .n_models = n_models, .has_base = has_base, .options = options, .ctx = ctx };
    HT_TRY(ht_perplexity_n_chunks(n_ids, options, &r.n_chunks, err));
    r.ops         = ht_graph_ops_get(ht_cpu_features() & ht_isa_features(ctx->isa));
    r.n_vocab     = ht_model_hparams(models[0])->n_vocab;
    r.n_per_chunk = options->n_ctx - 1 - options->n_ctx / 2;
    for (int m = 1; m < n_models; m++) {
        const int64_t n_vocab = ht_model_hparams(models[m])->n_vocab;
        HT_CHECK(n_vocab == r.n_vocab, ARG, "%s has a vocabulary of %" PRId64 ", %s one of %" PRId64, names[m], n_vocab, names[0], r.n_vocab);
    }
    HT_TRY(run_init(&r, err));
    for (int64_t c = 0; c < r.n_chunks; c++) {
        HT_CHECK(!ht_cancelled(ctx), CANCELLED, "interrupted after %" PRId64 " of %" PRId64 " chunks", c, r.n_chunks);
        HT_TRY(run_chunk(&r, ids, c, err));
        ht_progress(ctx, "evaluating", (uint64_t)(c + 1), (uint64_t)r.n_chunks);
    }
    for (int m = 0; m < n_models; m++) { summarise(&r, m, &scores[m]); }
done:
    run_deinit(&r);
    return st;
}
