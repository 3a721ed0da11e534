#include "calib/collect.h"

#include <cblas.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calib/layer.h"
#include "calib/work_folder.h"
#include "formats/base/half.h"

/*
 * Chunks that are held together in the backward pass: their inputs and gradients meet the Hessians in one product. Not a function of the thread count,
 * because the order of sums follows it.
 */
enum { GROUP = 8, HEAD_TOKENS = 128, PANEL = 128 };

/* Sums of one matrix: over fitted tokens [0] and held-out ones [1]. */
typedef struct site {
    char    name[HT_GGUF_MAX_NAME + 1];
    int64_t n_cols, n_rows;
    double* sum_sq;     /* n_cols                                            */
    double  n_tokens[2];
    float*  max_abs;    /* n_cols                                            */
    double* energy;     /* n_rows: sum of squared output gradients           */
    double* hessian[2]; /* (n_cols, n_cols), upper triangle; NULL when not asked for */
} site;

typedef struct collector {
    const ht_source*          source;
    const ht_calib_texts*     texts;
    const ht_collect_options* options;
    const ht_ctx*             ctx;
    const ht_family*          family;
    ht_hparams                hparams;
    ht_rope                   rope;
    const ht_graph_ops*       ops;
    float *                   output_norm, *output, *token_embd; /* output: the embedding when tied       */
    bool                      is_tied;
    int64_t                   n_ctx, n_chunks;
    float*                    x;       /* (n_chunks, n_ctx, n_embd): hidden states, then their gradients  */
    ht_layer_space*           spaces;  /* n_threads                                                       */
    int64_t                   n_members; /* GROUP, or the threads if they are more                        */
    float*                    inputs;  /* (n_members, n_ctx, width) x 4: what the spaces' h1, a, h2, f point to */
    float*                    energy;  /* (GROUP, n_ctx, linears): mean squared output gradient per token  */
    float*                    rows;    /* (GROUP, widest rows): sums over a chunk's tokens                 */
    float*                    scaled;  /* (GROUP, n_ctx, widest cols)                                      */
    ht_work_folder*           work;
    uint64_t                  steps_done, n_steps;
    ht_collect_report         report;
} collector;

static int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void step_done(collector* c) { ht_progress(c->ctx, "calibrating", ++c->steps_done, c->n_steps); }

static float* chunk_of(const collector* c, int64_t chunk) { return c->x + chunk * c->n_ctx * c->hparams.n_embd; }

/* --- sites -------------------------------------------------------------------------------------------------------------------------- */

static bool has_held_out(const collector* c)
{
    for (int64_t k = 0; k < c->n_chunks; k++) {
        if (c->texts->is_held_out[k]) { return true; }
    }
    return false;
}

static ht_status site_init(site* s, const collector* c, const char* name, int64_t n_rows, int64_t n_cols, ht_error* err)
{
    ht_status    st = HT_STATUS_OK;
    const size_t n  = (size_t)n_cols;
    *s = (site){ .n_cols = n_cols, .n_rows = n_rows };
    snprintf(s->name, sizeof s->name, "%s", name);
    s->sum_sq  = calloc(n, sizeof *s->sum_sq);
    s->max_abs = calloc(n, sizeof *s->max_abs);
    s->energy  = calloc((size_t)n_rows, sizeof *s->energy);
    HT_CHECK(s->sum_sq && s->max_abs && s->energy, NOMEM, "sums of %s", name);
    for (int k = 0; k < (c->options->importance_only ? 0 : has_held_out(c) ? 2 : 1); k++) {
        s->hessian[k] = calloc(n * n, sizeof *s->hessian[k]);
        HT_CHECK(s->hessian[k], NOMEM, "the Hessian of %s", name);
    }
done:
    return st;
}

static void site_deinit(site* s)
{
    free(s->sum_sq);
    free(s->max_abs);
    free(s->energy);
    free(s->hessian[0]);
    free(s->hessian[1]);
    *s = (site){ 0 };
}

/* sums and maxima of x (n_tokens, n_cols) */
static void site_add_inputs(site* s, const float* x, int64_t n_tokens, int n_threads)
{
    enum { COLUMNS = 64 };
#pragma omp parallel for schedule(static) num_threads(n_threads)
    for (int64_t from = 0; from < s->n_cols; from += COLUMNS) {
        const int64_t to = from + COLUMNS < s->n_cols ? from + COLUMNS : s->n_cols;
        for (int64_t t = 0; t < n_tokens; t++) {
            for (int64_t i = from; i < to; i++) {
                const float v = x[t * s->n_cols + i];
                s->sum_sq[i] += (double)v * (double)v;
                s->max_abs[i] = fabsf(v) > s->max_abs[i] ? fabsf(v) : s->max_abs[i];
            }
        }
    }
}

/*
 * h += sum over tokens of weight x x^T (weight NULL: one), upper triangle: panels of rows, each one f32 product over the group's tokens, added in f64.
 */
static ht_status add_hessian(collector* c, double* h, int64_t n, const float* x, const float* weight, int64_t weight_stride, int64_t n_tokens, ht_error* err)
{
    const float*  scaled = x;
    const int     threads = c->ctx->n_threads;
    bool          failed = false;
    if (weight) {
        scaled = c->scaled;
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t t = 0; t < n_tokens; t++) {
            const float root = sqrtf(weight[t * weight_stride]);
            for (int64_t i = 0; i < n; i++) { c->scaled[t * n + i] = root * x[t * n + i]; }
        }
    }
#pragma omp parallel num_threads(threads)
    {
        float* panel = malloc((size_t)(PANEL * n) * sizeof *panel);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < n; i += PANEL) {
            const int64_t rows = n - i < PANEL ? n - i : PANEL, cols = n - i;
            if (!panel) {
#pragma omp atomic write
                failed = true;
                continue;
            }
            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)rows, (int)cols, (int)n_tokens, 1.0f, scaled + i, (int)n, scaled + i, (int)n, 0.0f, panel, (int)cols);
            for (int64_t r = 0; r < rows; r++) {
                for (int64_t k = r; k < cols; k++) { h[(i + r) * n + i + k] += (double)panel[r * cols + k]; }
            }
        }
        free(panel);
    }
    c->report.flops += (double)n * (double)n * (double)n_tokens;
    return failed ? ht_fail(err, HT_STATUS_NOMEM, "a panel of a Hessian") : HT_STATUS_OK;
}

/* --- results of a step, in the work folder --------------------------------------------------------------------------------------------- */

/* | sums f64 | tokens 2 f64 | max f32 | energy f64 | triangles f32, means | */
static ht_status site_save(const site* s, FILE* f, ht_error* err)
{
    bool   ok  = true;
    float* row = malloc((size_t)s->n_cols * sizeof *row);
    if (!row) { return ht_fail(err, HT_STATUS_NOMEM, "results"); }
    ok = ok && fwrite(s->sum_sq, sizeof *s->sum_sq, (size_t)s->n_cols, f) == (size_t)s->n_cols;
    ok = ok && fwrite(s->n_tokens, sizeof s->n_tokens, 1, f) == 1;
    ok = ok && fwrite(s->max_abs, sizeof *s->max_abs, (size_t)s->n_cols, f) == (size_t)s->n_cols;
    ok = ok && fwrite(s->energy, sizeof *s->energy, (size_t)s->n_rows, f) == (size_t)s->n_rows;
    for (int k = 0; k < 2 && s->hessian[k]; k++) {
        const double inverse = s->n_tokens[k] > 0.0 ? 1.0 / s->n_tokens[k] : 0.0;
        for (int64_t i = 0; ok && i < s->n_cols; i++) {
            for (int64_t j = i; j < s->n_cols; j++) { row[j] = (float)(s->hessian[k][i * s->n_cols + j] * inverse); }
            ok = fwrite(row + i, sizeof *row, (size_t)(s->n_cols - i), f) == (size_t)(s->n_cols - i);
        }
    }
    free(row);
    return ok ? HT_STATUS_OK : ht_fail(err, HT_STATUS_IO, "cannot write results: %s", strerror(errno));
}

/* The Hessians come back as means; the rest as it was. */
static ht_status site_load(site* s, FILE* f, ht_error* err)
{
    bool   ok  = true;
    float* row = malloc((size_t)s->n_cols * sizeof *row);
    if (!row) { return ht_fail(err, HT_STATUS_NOMEM, "results"); }
    ok = ok && fread(s->sum_sq, sizeof *s->sum_sq, (size_t)s->n_cols, f) == (size_t)s->n_cols;
    ok = ok && fread(s->n_tokens, sizeof s->n_tokens, 1, f) == 1;
    ok = ok && fread(s->max_abs, sizeof *s->max_abs, (size_t)s->n_cols, f) == (size_t)s->n_cols;
    ok = ok && fread(s->energy, sizeof *s->energy, (size_t)s->n_rows, f) == (size_t)s->n_rows;
    for (int k = 0; k < 2 && s->hessian[k]; k++) {
        for (int64_t i = 0; ok && i < s->n_cols; i++) {
            ok = fread(row + i, sizeof *row, (size_t)(s->n_cols - i), f) == (size_t)(s->n_cols - i);
            for (int64_t j = i; j < s->n_cols; j++) { s->hessian[k][i * s->n_cols + j] = (double)row[j]; }
        }
    }
    free(row);
    return ok ? HT_STATUS_OK : ht_fail(err, HT_STATUS_IO, "the work folder's results are cut short");
}

static ht_status save_sites(collector* c, const char* step, const site* sites, int n, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    FILE*     f  = NULL;
    HT_TRY(ht_work_begin(c->work, step, &f, err));
    for (int k = 0; k < n; k++) { HT_TRY(site_save(&sites[k], f, err)); }
    HT_TRY(ht_work_commit(c->work, step, f, err));
    f = NULL;
done:
    ht_work_abandon(c->work, f);
    return st;
}

/* --- preparing -------------------------------------------------------------------------------------------------------------------------- */

static ht_status read_matrix(float** out, const ht_source* source, const char* name, bool required, int64_t n_cols, ht_error* err)
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

static ht_status prepare(collector* c, ht_error* err)
{
    ht_status               st      = HT_STATUS_OK;
    ht_hparams*             h       = &c->hparams;
    float*                  factors = NULL;
    const ht_source_tensor* embd    = ht_source_find_tensor(c->source, "token_embd.weight");
    HT_TRY(ht_hparams_read(h, &c->family, ht_source_meta(c->source), err));
    HT_CHECK(embd && embd->info.ne[0] == h->n_embd, FORMAT, "token_embd.weight is missing or has rows of another length than %" PRId64, h->n_embd);
    HT_CHECK(h->head_dim <= 1024 && h->head_dim_v <= 1024, UNSUPPORTED, "heads of %" PRId64 " dimensions", h->head_dim);
    h->n_vocab = embd->info.ne[1];
    HT_TRY(read_matrix(&factors, c->source, "rope_freqs.weight", false, h->n_rot / 2, err));
    HT_TRY(ht_rope_init(&c->rope, ht_source_meta(c->source), h->arch, h->n_rot, h->rope_neox, h->rope_freq_base, factors, err));
    c->ops      = ht_graph_ops_get(ht_cpu_features() & ht_isa_features(c->ctx->isa));
    c->n_ctx    = c->texts->n_ctx;
    c->n_chunks = c->texts->n_chunks;
    c->is_tied  = ht_source_find_tensor(c->source, "output.weight") == NULL;
    for (int64_t i = 0; i < c->n_ctx * c->n_chunks; i++) {
        HT_CHECK(c->texts->ids[i] >= 0 && c->texts->ids[i] < h->n_vocab, ARG, "token id %" PRId32 " is outside the vocabulary of %" PRId64, c->texts->ids[i], h->n_vocab);
    }
    HT_TRY(read_matrix(&c->output_norm, c->source, "output_norm.weight", true, h->n_embd, err));

    const int64_t n_attended = h->n_heads * h->head_dim_v, n_group = GROUP * c->n_ctx;
    const int64_t n_inputs   = 2 * h->n_embd + n_attended + h->n_ff, widest_cols = max_i64(max_i64(h->n_embd, n_attended), h->n_ff);
    const int64_t widest_rows = max_i64(max_i64(h->n_ff, h->n_heads * h->head_dim), max_i64(h->n_vocab, h->n_embd));
    c->x      = malloc((size_t)(c->n_chunks * c->n_ctx * h->n_embd) * sizeof *c->x);
    c->n_members = max_i64(GROUP, c->ctx->n_threads);
    c->inputs = malloc((size_t)(c->n_members * c->n_ctx * n_inputs) * sizeof *c->inputs);
    c->energy = malloc((size_t)(n_group * HT_LINEAR_COUNT) * sizeof *c->energy);
    c->rows   = malloc((size_t)(GROUP * max_i64(widest_rows, HT_LINEAR_COUNT * max_i64(h->n_ff, max_i64(h->n_embd, h->n_heads * h->head_dim)))) * sizeof *c->rows);
    c->scaled = malloc((size_t)(n_group * widest_cols) * sizeof *c->scaled);
    c->spaces = calloc((size_t)c->ctx->n_threads, sizeof *c->spaces);
    HT_CHECK(c->x && c->inputs && c->energy && c->rows && c->scaled && c->spaces, NOMEM, "hidden states of %" PRId64 " tokens", c->n_chunks * c->n_ctx);
    for (int k = 0; k < c->ctx->n_threads; k++) { HT_TRY(ht_layer_space_init(&c->spaces[k], h, &c->rope, c->n_ctx, err)); }
done:
    free(factors);
    return st;
}

/* The thread's space, its inputs in the place of the group's `member`. */
static ht_layer_space* space_for(const collector* c, int thread, int64_t member)
{
    const ht_hparams* h = &c->hparams;
    ht_layer_space*   s = &c->spaces[thread];
    const int64_t     group = c->n_members * c->n_ctx, at = member * c->n_ctx, n_attended = h->n_heads * h->head_dim_v;
    s->h1 = c->inputs + at * h->n_embd;
    s->h2 = c->inputs + group * h->n_embd + at * h->n_embd;
    s->a  = c->inputs + group * 2 * h->n_embd + at * n_attended;
    s->f  = c->inputs + group * (2 * h->n_embd + n_attended) + at * h->n_ff;
    return s;
}

static int64_t find_nonfinite(const float* x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) { return i; }
    }
    return n;
}

static ht_status check_hidden(const collector* c, const char* what, int64_t layer, ht_error* err)
{
    const int64_t n = c->n_chunks * c->n_ctx * c->hparams.n_embd, bad = find_nonfinite(c->x, n) / c->hparams.n_embd;
    if (bad >= c->n_chunks * c->n_ctx) { return HT_STATUS_OK; }
    return ht_fail(err, HT_STATUS_NUMERIC, "%s is not finite at layer %" PRId64 ", chunk %" PRId64 ", position %" PRId64 " (token id %" PRId32 ")", what, layer,
                   bad / c->n_ctx, bad % c->n_ctx, c->texts->ids[bad]);
}

/* --- forwards --------------------------------------------------------------------------------------------------------------------------- */

static double layer_flops(const ht_hparams* h, int64_t n_tokens, int64_t n_ctx)
{
    const double linears = (double)h->n_embd * (double)(h->n_heads * h->head_dim + h->n_heads_kv * (h->head_dim + h->head_dim_v) + h->n_heads * h->head_dim_v + 3 * h->n_ff);
    return 2.0 * (double)n_tokens * (linears + (double)n_ctx * (double)(h->n_heads * (h->head_dim + h->head_dim_v)));
}

static ht_status embed(collector* c, ht_error* err)
{
    const ht_hparams*       h  = &c->hparams;
    const ht_source_tensor* t  = ht_source_find_tensor(c->source, "token_embd.weight");
    for (int64_t i = 0; i < c->n_ctx * c->n_chunks; i++) {
        const ht_status st = ht_source_read_rows_f32(c->source, t, c->texts->ids[i], 1, c->x + i * h->n_embd, err);
        if (st != HT_STATUS_OK) { return st; }
    }
    return HT_STATUS_OK;
}

static ht_status read_layer(collector* c, ht_layer_f32* layer, int64_t index, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    ht_layer_describe(layer, &c->hparams, index);
    layer->ops  = c->ops;
    layer->rope = &c->rope;
    HT_TRY(ht_hparams_window(&c->hparams, ht_source_meta(c->source), index, &layer->window, err));
    HT_TRY(ht_layer_read(layer, c->source, index, c->ctx->n_threads, err));
done:
    return st;
}

/* Sums over inputs (for statistics without a backward pass) are taken in group order; else this is a plain sweep over chunks. */
static ht_status forward(collector* c, ht_error* err)
{
    ht_status         st    = HT_STATUS_OK;
    const ht_hparams* h     = &c->hparams;
    const size_t      n_x   = (size_t)(c->n_chunks * c->n_ctx * h->n_embd);
    ht_layer_f32      layer = { 0 };
    char              name[64];
    int64_t           first = h->n_layers;
    for (; first >= 0; first--) { /* the last layer input that is there already */
        snprintf(name, sizeof name, "x_%" PRId64, first);
        if (ht_work_has(c->work, name)) { break; }
    }
    if (first < 0) {
        HT_TRY(embed(c, err));
        HT_TRY(ht_work_write(c->work, "x_0", c->x, n_x * sizeof *c->x, err));
        first = 0;
    } else {
        HT_TRY(ht_work_read(c->work, name, c->x, n_x * sizeof *c->x, err));
        c->report.n_layers_resumed += first;
    }
    c->steps_done += (uint64_t)first;
    for (int64_t i = first; i < h->n_layers; i++) {
        HT_CHECK(!ht_cancelled(c->ctx), CANCELLED, "interrupted; --resume goes on from here");
        HT_TRY(read_layer(c, &layer, i, err));
#pragma omp parallel num_threads(c->ctx->n_threads)
        {
            float* y = malloc((size_t)(c->n_ctx * h->n_embd) * sizeof *y);
#pragma omp for schedule(dynamic, 1)
            for (int64_t k = 0; k < c->n_chunks; k++) {
                if (!y) {
#pragma omp atomic write
                    st = HT_STATUS_NOMEM;
                    continue;
                }
                ht_layer_forward(&layer, space_for(c, omp_get_thread_num(), omp_get_thread_num()), chunk_of(c, k), y);
                memcpy(chunk_of(c, k), y, (size_t)(c->n_ctx * h->n_embd) * sizeof *y);
            }
            free(y);
        }
        HT_CHECK(st == HT_STATUS_OK, NOMEM, "activations");
        c->report.flops += layer_flops(h, c->n_chunks * c->n_ctx, c->n_ctx);
        ht_layer_deinit(&layer);
        HT_TRY(check_hidden(c, "the hidden state", i, err));
        snprintf(name, sizeof name, "x_%" PRId64, i + 1);
        HT_TRY(ht_work_write(c->work, name, c->x, n_x * sizeof *c->x, err));
        step_done(c);
    }
done:
    ht_layer_deinit(&layer);
    return st;
}

/* --- groups of chunks -------------------------------------------------------------------------------------------------------------------- */

/* Chunks of one kind (held out or not), GROUP at a time: members[0 … n) after *next. */
static int64_t next_group(const collector* c, bool held_out, int64_t* next, int64_t members[GROUP])
{
    int64_t n = 0;
    for (; *next < c->n_chunks && n < GROUP; ++*next) {
        if (c->texts->is_held_out[*next] == held_out) { members[n++] = *next; }
    }
    return n;
}

/* --- head ---------------------------------------------------------------------------------------------------------------------------------- */

static uint64_t random_next(uint64_t* state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static double random_unit(uint64_t* state) { return (double)(random_next(state) >> 11) * 0x1p-53; }

/*
 * One chunk: hidden (n_ctx, n_embd) normed states; to `dh` goes the gradient of the log-probability of labels drawn from the model. `energy`: per token the mean over
 * rows of p (1 - p); `rows`: per row its sum over tokens. Returns the sum of -log p(next token).
 */
static double head_chunk(const collector* c, int64_t chunk, const float* hidden, float* dh, float* energy, float* rows, float* logits)
{
    const ht_hparams* h     = &c->hparams;
    const int32_t*    ids   = c->texts->ids + chunk * c->n_ctx;
    uint64_t          state = c->ctx->seed * 0x9E3779B97F4A7C15u + (uint64_t)chunk;
    double            nll   = 0.0;
    const int64_t     n_vocab = h->n_vocab;
    memset(rows, 0, (size_t)n_vocab * sizeof *rows);
    for (int64_t from = 0; from < c->n_ctx; from += HEAD_TOKENS) {
        const int64_t n = c->n_ctx - from < HEAD_TOKENS ? c->n_ctx - from : HEAD_TOKENS;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)n_vocab, (int)h->n_embd, 1.0f, hidden + from * h->n_embd, (int)h->n_embd, c->output, (int)h->n_embd,
                    0.0f, logits, (int)n_vocab);
        for (int64_t t = 0; t < n; t++) {
            float* row = logits + t * n_vocab;
            float  max = 0.0f;
            double log_sum = 0.0, total = 0.0, sum_v = 0.0;
            c->ops->log_sum_exp(row, n_vocab, &max, &log_sum);
            if (from + t + 1 < c->n_ctx) { nll += (double)max + log_sum - (double)row[ids[from + t + 1]]; }
            const double point = random_unit(&state);
            const float  shift = max + (float)log_sum;
            int64_t      label = -1;
            ht_exp_shifted(row, n_vocab, shift);
            for (int64_t r = 0; r < n_vocab; r++) {
                const float p = row[r], v = p * (1.0f - p);
                total += (double)p;
                if (label < 0 && total > point) { label = r; }
                sum_v += (double)v;
                rows[r] += v;
                row[r] = -p;
            }
            row[label < 0 ? n_vocab - 1 : label] += 1.0f;
            energy[from + t] = (float)(sum_v / (double)n_vocab);
        }
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)h->n_embd, (int)n_vocab, 1.0f, logits, (int)n_vocab, c->output, (int)h->n_embd, 0.0f,
                    dh + from * h->n_embd, (int)h->n_embd);
    }
    return nll;
}

static ht_status head_group(collector* c, site* s, const int64_t* members, int64_t n, bool held_out, double* nll, ht_error* err)
{
    ht_status         st = HT_STATUS_OK;
    const ht_hparams* h  = &c->hparams;
    const int64_t     n_x = c->n_ctx * h->n_embd;
    double            each[GROUP] = { 0 };
    bool              no_memory = false;
#pragma omp parallel num_threads(c->ctx->n_threads)
    {
        float* logits = malloc((size_t)(HEAD_TOKENS * h->n_vocab) * sizeof *logits);
        float* dh     = malloc((size_t)n_x * sizeof *dh);
#pragma omp for schedule(dynamic, 1)
        for (int64_t k = 0; k < n; k++) {
            float* x      = chunk_of(c, members[k]);
            float* hidden = c->inputs + k * n_x;
            if (!logits || !dh) {
#pragma omp atomic write
                no_memory = true;
                continue;
            }
            for (int64_t t = 0; t < c->n_ctx; t++) { c->ops->rms_norm(x + t * h->n_embd, c->output_norm, h->norm_rms_eps, h->n_embd, hidden + t * h->n_embd); }
            if (!c->options->guided) { continue; }
            each[k] = head_chunk(c, members[k], hidden, dh, c->energy + k * c->n_ctx, c->rows + k * h->n_vocab, logits);
            float* dx = logits; /* no longer needed */
            memset(dx, 0, (size_t)n_x * sizeof *dx);
            ht_rms_norm_backward(x, c->output_norm, h->norm_rms_eps, c->n_ctx, h->n_embd, dh, dx);
            memcpy(x, dx, (size_t)n_x * sizeof *dx);
        }
        free(logits);
        free(dh);
    }
    HT_CHECK(!no_memory, NOMEM, "logits of %d tokens", HEAD_TOKENS);
    for (int64_t k = 0; k < n; k++) { *nll += each[k]; }
    if (c->options->guided) { c->report.flops += 4.0 * (double)(n * c->n_ctx) * (double)h->n_embd * (double)h->n_vocab; }
    s->n_tokens[held_out] += (double)(n * c->n_ctx);
    if (!held_out) {
        site_add_inputs(s, c->inputs, n * c->n_ctx, c->ctx->n_threads);
        for (int64_t k = 0; c->options->guided && k < n; k++) {
            for (int64_t r = 0; r < h->n_vocab; r++) { s->energy[r] += (double)c->rows[k * h->n_vocab + r]; }
        }
    }
    if (s->hessian[held_out]) { HT_TRY(add_hessian(c, s->hessian[held_out], h->n_embd, c->inputs, c->options->guided ? c->energy : NULL, 1, n * c->n_ctx, err)); }
done:
    return st;
}

/* HEAD_TOKENS * n_vocab floats must hold the gradient of a chunk too: true of every real vocabulary, checked for the rest. */
static ht_status head(collector* c, ht_error* err)
{
    ht_status         st = HT_STATUS_OK;
    const ht_hparams* h  = &c->hparams;
    site              s  = { 0 };
    double            nll = 0.0;
    const size_t      n_x = (size_t)(c->n_chunks * c->n_ctx * h->n_embd);
    HT_CHECK(HEAD_TOKENS * h->n_vocab >= c->n_ctx * h->n_embd, UNSUPPORTED, "a vocabulary of %" PRId64 " for %" PRId64 " dimensions", h->n_vocab, h->n_embd);
    if (ht_work_has(c->work, "head") && (!c->options->guided || ht_work_has(c->work, "g_head"))) {
        if (c->options->guided) { HT_TRY(ht_work_read(c->work, "g_head", c->x, n_x * sizeof *c->x, err)); }
        c->report.n_layers_resumed++;
        goto done;
    }
    HT_TRY(site_init(&s, c, c->is_tied ? "token_embd.weight" : "output.weight", h->n_vocab, h->n_embd, err));
    HT_TRY(read_matrix(&c->output, c->source, c->is_tied ? "token_embd.weight" : "output.weight", true, h->n_embd, err));
    for (int held_out = 0; held_out < 2; held_out++) {
        int64_t members[GROUP], next = 0;
        for (int64_t n = next_group(c, held_out, &next, members); n > 0; n = next_group(c, held_out, &next, members)) {
            HT_CHECK(!ht_cancelled(c->ctx), CANCELLED, "interrupted; --resume goes on from here");
            HT_TRY(head_group(c, &s, members, n, held_out, &nll, err));
        }
    }
    c->report.nll_mean = nll / (double)(c->n_chunks * (c->n_ctx - 1));
    HT_TRY(check_hidden(c, "the gradient", h->n_layers, err));
    if (c->options->guided) { HT_TRY(ht_work_write(c->work, "g_head", c->x, n_x * sizeof *c->x, err)); }
    HT_TRY(save_sites(c, "head", &s, 1, err));
done:
    free(c->output);
    c->output = NULL;
    site_deinit(&s);
    return st;
}

/* --- backwards ---------------------------------------------------------------------------------------------------------------------------- */

/* Mean squared gradient per token, and its sums per row. */
static void measure_gradient(const float* g, int64_t n, int64_t n_rows, float* energy, int64_t stride, float* rows)
{
    memset(rows, 0, (size_t)n_rows * sizeof *rows);
    for (int64_t t = 0; t < n; t++) {
        double sum = 0.0;
        for (int64_t r = 0; r < n_rows; r++) {
            const float square = g[t * n_rows + r] * g[t * n_rows + r];
            rows[r] += square;
            sum += (double)square;
        }
        energy[t * stride] = (float)(sum / (double)n_rows);
    }
}

/* Inputs shared by several linears are looked at once: the first of them stands for all where no gradient tells them apart. */
static ht_linear_id first_of_input(ht_linear_id k)
{
    return k <= HT_LINEAR_V ? HT_LINEAR_Q : k == HT_LINEAR_UP ? HT_LINEAR_GATE : k;
}

static ht_status layer_group(collector* c, const ht_layer_f32* layer, site* sites, const float* inputs_x, const int64_t* members, int64_t n, bool held_out, ht_error* err)
{
    ht_status         st = HT_STATUS_OK;
    const ht_hparams* h  = &c->hparams;
    const int64_t     n_x = c->n_ctx * h->n_embd, widest = max_i64(h->n_ff, max_i64(h->n_embd, h->n_heads * h->head_dim));
    bool              no_memory = false;
#pragma omp parallel num_threads(c->ctx->n_threads)
    {
        float* y = malloc((size_t)n_x * sizeof *y);
#pragma omp for schedule(dynamic, 1)
        for (int64_t k = 0; k < n; k++) {
            ht_layer_space* s = space_for(c, omp_get_thread_num(), k);
            const float*    x = inputs_x + members[k] * n_x;
            float*          g = chunk_of(c, members[k]);
            if (!y) {
#pragma omp atomic write
                no_memory = true;
                continue;
            }
            ht_layer_forward(layer, s, x, y);
            if (!c->options->guided) { continue; }
            ht_layer_backward(layer, s, x, g, y);
            for (int l = 0; l < HT_LINEAR_COUNT; l++) {
                measure_gradient(ht_layer_output_gradient(s, (ht_linear_id)l, g), c->n_ctx, sites[l].n_rows, c->energy + k * c->n_ctx * HT_LINEAR_COUNT + l, HT_LINEAR_COUNT,
                                 c->rows + (k * HT_LINEAR_COUNT + l) * widest);
            }
            memcpy(g, y, (size_t)n_x * sizeof *y);
        }
        free(y);
    }
    HT_CHECK(!no_memory, NOMEM, "activations");
    c->report.flops += (c->options->guided ? 2.0 : 1.0) * layer_flops(h, n * c->n_ctx, c->n_ctx);
    for (int l = 0; l < HT_LINEAR_COUNT; l++) {
        site*              s     = &sites[l];
        const ht_linear_id first = first_of_input((ht_linear_id)l);
        const float*       x     = ht_layer_input(space_for(c, 0, 0), (ht_linear_id)l);
        s->n_tokens[held_out] += (double)(n * c->n_ctx);
        if (!held_out && first == (ht_linear_id)l) { site_add_inputs(s, x, n * c->n_ctx, c->ctx->n_threads); }
        for (int64_t k = 0; c->options->guided && !held_out && k < n; k++) {
            for (int64_t r = 0; r < s->n_rows; r++) { s->energy[r] += (double)c->rows[(k * HT_LINEAR_COUNT + l) * widest + r]; }
        }
        if (!s->hessian[held_out] || (!c->options->guided && first != (ht_linear_id)l)) { continue; }
        HT_TRY(add_hessian(c, s->hessian[held_out], s->n_cols, x, c->options->guided ? c->energy + l : NULL, HT_LINEAR_COUNT, n * c->n_ctx, err));
    }
done:
    return st;
}

/* What the first linear of an input knows, the others know too. */
static void share_inputs(const collector* c, site* sites)
{
    for (int l = 0; l < HT_LINEAR_COUNT; l++) {
        const site* from = &sites[first_of_input((ht_linear_id)l)];
        site*       s    = &sites[l];
        if (from == s) { continue; }
        memcpy(s->sum_sq, from->sum_sq, (size_t)s->n_cols * sizeof *s->sum_sq);
        memcpy(s->max_abs, from->max_abs, (size_t)s->n_cols * sizeof *s->max_abs);
        for (int k = 0; k < 2 && s->hessian[k] && !c->options->guided; k++) {
            memcpy(s->hessian[k], from->hessian[k], (size_t)(s->n_cols * s->n_cols) * sizeof *s->hessian[k]);
        }
    }
}

static ht_status layer_sites_init(const collector* c, int64_t index, site* sites, ht_error* err)
{
    ht_status    st = HT_STATUS_OK;
    ht_layer_f32 layer;
    ht_layer_describe(&layer, &c->hparams, index);
    for (int l = 0; l < HT_LINEAR_COUNT; l++) { HT_TRY(site_init(&sites[l], c, layer.linears[l].name, layer.linears[l].n_rows, layer.linears[l].n_cols, err)); }
done:
    return st;
}

static void sites_deinit(site* sites, int n)
{
    for (int k = 0; k < n; k++) { site_deinit(&sites[k]); }
}

/* Layer `index` from its kept input and, in c->x, the gradient of its output; leaves the gradient of its input. */
static ht_status backward_layer(collector* c, int64_t index, float* inputs_x, ht_error* err)
{
    ht_status    st = HT_STATUS_OK;
    const size_t n_x = (size_t)(c->n_chunks * c->n_ctx * c->hparams.n_embd);
    site         sites[HT_LINEAR_COUNT] = { 0 };
    ht_layer_f32 layer = { 0 };
    char         name[64];
    snprintf(name, sizeof name, "x_%" PRId64, index);
    HT_TRY(ht_work_read(c->work, name, inputs_x, n_x * sizeof *inputs_x, err));
    HT_TRY(read_layer(c, &layer, index, err));
    HT_TRY(layer_sites_init(c, index, sites, err));
    for (int held_out = 0; held_out < 2; held_out++) {
        int64_t members[GROUP], next = 0;
        for (int64_t n = next_group(c, held_out, &next, members); n > 0; n = next_group(c, held_out, &next, members)) {
            HT_CHECK(!ht_cancelled(c->ctx), CANCELLED, "interrupted; --resume goes on from here");
            HT_TRY(layer_group(c, &layer, sites, inputs_x, members, n, held_out, err));
        }
    }
    share_inputs(c, sites);
    if (c->options->guided) {
        HT_TRY(check_hidden(c, "the gradient", index, err));
        snprintf(name, sizeof name, "g_%" PRId64, index);
        HT_TRY(ht_work_write(c->work, name, c->x, n_x * sizeof *c->x, err));
    }
    snprintf(name, sizeof name, "layer_%" PRId64, index);
    HT_TRY(save_sites(c, name, sites, HT_LINEAR_COUNT, err));
done:
    ht_layer_deinit(&layer);
    sites_deinit(sites, HT_LINEAR_COUNT);
    return st;
}

static ht_status backward(collector* c, ht_error* err)
{
    ht_status    st = HT_STATUS_OK;
    const size_t n_x = (size_t)(c->n_chunks * c->n_ctx * c->hparams.n_embd);
    float*       inputs_x = malloc(n_x * sizeof *inputs_x);
    char         name[64];
    int64_t      next = c->hparams.n_layers - 1;
    HT_CHECK(inputs_x, NOMEM, "hidden states");
    for (; next >= 0; next--) { /* layers that are done already */
        snprintf(name, sizeof name, "layer_%" PRId64, next);
        if (!ht_work_has(c->work, name)) { break; }
        c->report.n_layers_resumed++;
        step_done(c);
    }
    if (c->options->guided && next < c->hparams.n_layers - 1) {
        snprintf(name, sizeof name, "g_%" PRId64, next + 1);
        HT_TRY(ht_work_read(c->work, name, c->x, n_x * sizeof *c->x, err));
    }
    for (; next >= 0; next--) {
        HT_TRY(backward_layer(c, next, inputs_x, err));
        if (next + 2 <= c->hparams.n_layers) { /* nobody comes back to these */
            snprintf(name, sizeof name, "g_%" PRId64, next + 1);
            ht_work_remove(c->work, name);
        }
        step_done(c);
    }
done:
    free(inputs_x);
    return st;
}

/* --- the file --------------------------------------------------------------------------------------------------------------------------------- */

static uint32_t hessian_bits(const collector* c, bool role_1)
{
    const ht_hessian_kind fitted = !c->options->guided ? HT_HESSIAN_PLAIN : role_1 ? HT_HESSIAN_GUIDED_1 : HT_HESSIAN_GUIDED;
    const ht_hessian_kind held   = role_1 ? HT_HESSIAN_HELD_OUT_1 : HT_HESSIAN_HELD_OUT;
    if (c->options->importance_only) { return 0; }
    return 1u << fitted | (has_held_out(c) ? 1u << held : 0);
}

/* f_r / mean f */
static ht_status put_row_weight(ht_statistics_writer* w, const site* s, int role, ht_error* err)
{
    ht_status st  = HT_STATUS_OK;
    double    sum = 0.0;
    float*    row_weight = malloc((size_t)s->n_rows * sizeof *row_weight);
    HT_CHECK(row_weight, NOMEM, "row weights");
    for (int64_t r = 0; r < s->n_rows; r++) { sum += s->energy[r]; }
    const double inverse = sum > 0.0 ? (role == 0 ? (double)s->n_rows : 1.0) / sum : 0.0;
    for (int64_t r = 0; r < s->n_rows; r++) { row_weight[r] = (float)(s->energy[r] * inverse); }
    HT_TRY(ht_statistics_writer_put_row_weight(w, s->name, role, row_weight, err));
done:
    free(row_weight);
    return st;
}

static ht_status put_site(const collector* c, ht_statistics_writer* w, const site* s, int role, bool with_sums, ht_error* err)
{
    ht_status             st     = HT_STATUS_OK;
    const ht_hessian_kind fitted = !c->options->guided ? HT_HESSIAN_PLAIN : role ? HT_HESSIAN_GUIDED_1 : HT_HESSIAN_GUIDED;
    const ht_hessian_kind held   = role ? HT_HESSIAN_HELD_OUT_1 : HT_HESSIAN_HELD_OUT;
    if (with_sums) {
        HT_TRY(ht_statistics_writer_put_sums(w, s->name, s->sum_sq, &s->n_tokens[0], err));
        HT_TRY(ht_statistics_writer_put_max(w, s->name, s->max_abs, err));
    }
    if (c->options->guided) { HT_TRY(put_row_weight(w, s, role, err)); }
    if (s->hessian[0]) { HT_TRY(ht_statistics_writer_put_hessian(w, s->name, fitted, s->hessian[0], 1.0, err)); }
    if (s->hessian[1]) { HT_TRY(ht_statistics_writer_put_hessian(w, s->name, held, s->hessian[1], 1.0, err)); }
done:
    return st;
}

static ht_status load_sites(const collector* c, const char* step, site* sites, int n, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    FILE*     f  = NULL;
    HT_TRY(ht_work_open(c->work, step, &f, err));
    for (int k = 0; k < n; k++) { HT_TRY(site_load(&sites[k], f, err)); }
done:
    if (f) { (void)fclose(f); }
    return st;
}

/* The embedding's other role: H = mean g g^T where the gradient leaves the embedding (it is in c->x), rows by how often a token occurs. */
static ht_status embedding_site(collector* c, site* s, ht_error* err)
{
    ht_status     st = HT_STATUS_OK;
    const int64_t n_embd = c->hparams.n_embd;
    HT_TRY(site_init(s, c, "token_embd.weight", c->hparams.n_vocab, n_embd, err));
    if (c->hparams.n_layers > 0) { HT_TRY(ht_work_read(c->work, "g_0", c->x, (size_t)(c->n_chunks * c->n_ctx * n_embd) * sizeof *c->x, err)); }
    for (int64_t k = 0; k < c->n_chunks; k++) {
        const int held_out = c->texts->is_held_out[k];
        s->n_tokens[held_out] += (double)c->n_ctx;
        if (s->hessian[held_out]) { HT_TRY(add_hessian(c, s->hessian[held_out], n_embd, chunk_of(c, k), NULL, 0, c->n_ctx, err)); }
        if (held_out) { continue; }
        site_add_inputs(s, chunk_of(c, k), c->n_ctx, c->ctx->n_threads);
        for (int64_t t = 0; t < c->n_ctx; t++) { s->energy[c->texts->ids[k * c->n_ctx + t]] += 1.0; }
    }
    for (int k = 0; k < 2 && s->hessian[k]; k++) {
        for (int64_t i = 0; i < n_embd * n_embd; i++) { s->hessian[k][i] /= s->n_tokens[k] > 0.0 ? s->n_tokens[k] : 1.0; }
    }
done:
    return st;
}

static void add_shape(const collector* c, ht_statistics_shape* shapes, int64_t* n, const char* name, int64_t n_rows, int64_t n_cols, bool role_0, bool role_1)
{
    ht_statistics_shape* s = &shapes[(*n)++];
    *s = (ht_statistics_shape){ .n_cols = n_cols, .n_mats = 1, .n_rows = n_rows, .has_max = true, .has_row_weight = { role_0 && c->options->guided, role_1 } };
    snprintf(s->name, sizeof s->name, "%s", name);
    s->hessians = (role_0 ? hessian_bits(c, false) : 0) | (role_1 ? hessian_bits(c, true) : 0);
}

static ht_status fill_meta(const collector* c, ht_meta* meta, ht_error* err)
{
    ht_status   st = HT_STATUS_OK;
    char        sha256[65];
    ht_string*  names = calloc((size_t)c->texts->n_sources + 1, sizeof *names);
    uint64_t    n_named = 0;
    HT_CHECK(names, NOMEM, "data set names");
    for (int k = 0; k < c->texts->n_sources; k++) {
        const char* name  = c->texts->sources[k].name;
        const char* slash = strrchr(name, '/'); /* paths of the machine do not belong into the file */
        name = slash && slash[1] ? slash + 1 : name;
        names[n_named++] = (ht_string){ name, strlen(name) };
    }
    HT_TRY(ht_meta_set_strings(meta, "imatrix.datasets", true, n_named, names, err));
    HT_TRY(ht_meta_set_u32(meta, "imatrix.chunk_count", (uint32_t)c->n_chunks, err));
    HT_TRY(ht_meta_set_u32(meta, "imatrix.chunk_size", (uint32_t)c->n_ctx, err));
    HT_TRY(ht_source_sha256(c->source, sha256, err));
    HT_TRY(ht_meta_set_string(meta, "halftone.version", HT_VERSION, err));
    HT_TRY(ht_meta_set_string(meta, "halftone.source.name", ht_source_name(c->source), err));
    HT_TRY(ht_meta_set_string(meta, "halftone.source.sha256", sha256, err));
    HT_TRY(ht_meta_set_string(meta, "halftone.calibration.sha256", c->texts->sha256, err));
    HT_TRY(ht_meta_set_string(meta, "halftone.calibration.isa", ht_isa_name(c->ctx->isa), err));
    HT_TRY(ht_meta_set_u64(meta, "halftone.calibration.seed", c->ctx->seed, err));
done:
    free(names);
    return st;
}

static void count_zero_columns(collector* c, const site* s)
{
    for (int64_t i = 0; i < s->n_cols; i++) { c->report.n_zero_columns += s->sum_sq[i] == 0.0; }
}

static ht_status write_file(collector* c, const char* path, ht_error* err)
{
    ht_status             st = HT_STATUS_OK;
    const ht_hparams*     h  = &c->hparams;
    int64_t               n_shapes = 0;
    site                  sites[HT_LINEAR_COUNT] = { 0 }, head_site = { 0 }, embd = { 0 };
    ht_statistics_writer* w = NULL;
    ht_meta*              meta = ht_meta_create();
    ht_statistics_shape*  shapes = calloc((size_t)(h->n_layers * HT_LINEAR_COUNT + 2), sizeof *shapes);
    const bool            has_embd_role = c->options->guided;
    char                  step[64];
    HT_CHECK(meta && shapes, NOMEM, "the layout of the statistics");
    for (int64_t i = 0; i < h->n_layers; i++) {
        ht_layer_f32 layer;
        ht_layer_describe(&layer, h, i);
        for (int l = 0; l < HT_LINEAR_COUNT; l++) { add_shape(c, shapes, &n_shapes, layer.linears[l].name, layer.linears[l].n_rows, layer.linears[l].n_cols, true, false); }
    }
    add_shape(c, shapes, &n_shapes, c->is_tied ? "token_embd.weight" : "output.weight", h->n_vocab, h->n_embd, true, c->is_tied && has_embd_role);
    if (!c->is_tied && has_embd_role) { add_shape(c, shapes, &n_shapes, "token_embd.weight", h->n_vocab, h->n_embd, false, true); }
    HT_TRY(fill_meta(c, meta, err));
    HT_TRY(ht_statistics_writer_create(&w, path, meta, shapes, n_shapes, c->options->force, err));

    HT_TRY(site_init(&head_site, c, c->is_tied ? "token_embd.weight" : "output.weight", h->n_vocab, h->n_embd, err));
    HT_TRY(load_sites(c, "head", &head_site, 1, err));
    HT_TRY(put_site(c, w, &head_site, 0, true, err));
    count_zero_columns(c, &head_site);
    c->report.n_tokens          = (int64_t)head_site.n_tokens[0];
    c->report.n_tokens_held_out = (int64_t)head_site.n_tokens[1];
    if (has_embd_role) {
        HT_TRY(embedding_site(c, &embd, err));
        HT_TRY(put_site(c, w, &embd, 1, !c->is_tied, err));
    }
    for (int64_t i = 0; i < h->n_layers; i++) {
        snprintf(step, sizeof step, "layer_%" PRId64, i);
        HT_TRY(layer_sites_init(c, i, sites, err));
        HT_TRY(load_sites(c, step, sites, HT_LINEAR_COUNT, err));
        for (int l = 0; l < HT_LINEAR_COUNT; l++) {
            HT_TRY(put_site(c, w, &sites[l], 0, true, err));
            count_zero_columns(c, &sites[l]);
        }
        sites_deinit(sites, HT_LINEAR_COUNT);
    }
    {
        ht_statistics_writer* done_writer = w;
        w = NULL; /* finish frees it either way */
        HT_TRY(ht_statistics_writer_finish(done_writer, err));
    }
done:
    ht_statistics_writer_discard(w);
    sites_deinit(sites, HT_LINEAR_COUNT);
    site_deinit(&head_site);
    site_deinit(&embd);
    ht_meta_free(meta);
    free(shapes);
    return st;
}

/* --- the run ------------------------------------------------------------------------------------------------------------------------------- */

static ht_status open_work(collector* c, const char* path, ht_error* err)
{
    char      source[65], key[512];
    ht_status st = ht_source_sha256(c->source, source, err);
    if (st != HT_STATUS_OK) { return st; }
    snprintf(key, sizeof key, "version %s\nsource %s\ntext %s\nseed %" PRIu64 "\nguided %d\nimportance only %d\nisa %s\n", HT_VERSION, source, c->texts->sha256, c->ctx->seed,
             c->options->guided, c->options->importance_only, ht_isa_name(c->ctx->isa));
    return ht_work_folder_open(&c->work, path, key, c->options->resume, err);
}

ht_status ht_collect_run(const ht_source* source, const ht_calib_texts* texts, const char* path, const ht_collect_options* options,
                         const ht_ctx* ctx, ht_collect_report* report, ht_error* err)
{
    ht_status          st  = HT_STATUS_OK;
    ht_collect_options use = *options;
    collector          c   = { .source = source, .texts = texts, .options = &use, .ctx = ctx };
    use.guided = options->guided && !options->importance_only;
    HT_TRY(prepare(&c, err));
    HT_TRY(open_work(&c, path, err));
    openblas_set_num_threads(1); /* threads share the work by chunks and panels, in an order that does not depend on how many there are */
    c.n_steps = 2 * (uint64_t)c.hparams.n_layers;
    double start_s = now_s();
    HT_TRY(forward(&c, err));
    c.report.forward_s = now_s() - start_s;
    start_s            = now_s();
    HT_TRY(head(&c, err));
    HT_TRY(backward(&c, err));
    c.report.backward_s = now_s() - start_s;
    HT_TRY(write_file(&c, path, err));
    ht_work_folder_remove(c.work);
    *report = c.report;
done:
    for (int k = 0; c.spaces && k < ctx->n_threads; k++) { ht_layer_space_deinit(&c.spaces[k]); }
    ht_work_folder_close(c.work);
    ht_rope_deinit(&c.rope);
    free(c.output_norm);
    free(c.x);
    free(c.inputs);
    free(c.energy);
    free(c.rows);
    free(c.scaled);
    free(c.spaces);
    if (st != HT_STATUS_OK && err) { ht_error_set_file(err, ht_source_path(source)); }
    return st;
}
