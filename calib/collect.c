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

#include "calib/layer_runner.h"
#include "calib/probe.h"
#include "calib/work_folder.h"
#include "formats/base/half.h"

/*
 * Chunks that are held together in the backward pass: their inputs and gradients meet the Hessians in one product. Not a function of the thread count,
 * because the order of sums follows it.
 */
enum { GROUP = 8, HEAD_TOKENS = 128, PANEL = 128 };

/* Bytes of hidden states that are kept in RAM when the caller does not say: twice 128k tokens of a width of 4096. */
#define DEFAULT_STATES ((uint64_t)4 << 30)

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
    ht_layer_runner           run;     /* n_members: GROUP or more                                        */
    const ht_calib_texts*     texts;
    const ht_collect_options* options;
    float*                    output;  /* the output matrix, while the head is worked on                  */
    int64_t                   n_chunks;
    float*                    x;       /* (n_chunks, n_ctx, n_embd): hidden states, then their gradients  */
    size_t                    n_x;     /* values of x                                                     */
    bool                      is_spilled; /* x lies in the work folder                                    */
    float**                   chunks;  /* where each chunk's begin                                        */
    float*                    energy;  /* (GROUP, n_ctx, linears): mean squared output gradient per token  */
    float*                    rows;    /* (GROUP, widest rows): sums over a chunk's tokens                 */
    float*                    scaled;  /* (GROUP, n_ctx, widest cols)                                      */
    double*                   factors; /* of probe.h; NULL unless probed                                   */
    ht_work_folder*           work;
    uint64_t                  steps_done, n_steps;
    ht_collect_report         report;
} collector;

static bool is_tied(const collector* c) { return strcmp(c->run.output_name, "token_embd.weight") == 0; }

static int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void step_done(collector* c) { ht_progress(c->run.ctx, "calibrating", ++c->steps_done, c->n_steps); }

static float* chunk_of(const collector* c, int64_t chunk) { return c->chunks[chunk]; }

static bool is_guided(const collector* c) { return c->options->kind == HT_COLLECT_GUIDED; }
/* Whether Hessians are scaled so that errors of all matrices can be compared. */
static bool is_comparable(const collector* c) { return c->options->kind == HT_COLLECT_GUIDED || c->options->kind == HT_COLLECT_PROBED; }

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
    for (int k = 0; k < (c->options->kind == HT_COLLECT_IMPORTANCE ? 0 : has_held_out(c) ? 2 : 1); k++) {
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
    const int     threads = c->run.ctx->n_threads;
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

static ht_status prepare(collector* c, const ht_source* source, const ht_ctx* ctx, ht_error* err)
{
    ht_status     st    = HT_STATUS_OK;
    const int64_t n_ctx = c->texts->n_ctx, n_group = GROUP * n_ctx;
    HT_TRY(ht_layer_runner_init(&c->run, source, n_ctx, GROUP, ctx, err));
    const ht_hparams* h = &c->run.hparams;
    c->n_chunks = c->texts->n_chunks;
    for (int64_t i = 0; i < n_ctx * c->n_chunks; i++) {
        HT_CHECK(c->texts->ids[i] >= 0 && c->texts->ids[i] < h->n_vocab, ARG, "token id %" PRId32 " is outside the vocabulary of %" PRId64, c->texts->ids[i], h->n_vocab);
    }
    const int64_t n_attended = h->n_heads * h->head_dim_v, widest_cols = max_i64(max_i64(h->n_embd, n_attended), h->n_ff);
    const int64_t widest_rows = max_i64(max_i64(h->n_ff, h->n_heads * h->head_dim), max_i64(h->n_vocab, h->n_embd));
    c->n_x    = (size_t)(c->n_chunks * n_ctx * h->n_embd);
    c->chunks = malloc((size_t)(c->n_chunks + 1) * sizeof *c->chunks);
    c->energy = malloc((size_t)(n_group * HT_LINEAR_COUNT) * sizeof *c->energy);
    c->rows   = malloc((size_t)(GROUP * max_i64(widest_rows, HT_LINEAR_COUNT * max_i64(h->n_ff, max_i64(h->n_embd, h->n_heads * h->head_dim)))) * sizeof *c->rows);
    c->scaled = malloc((size_t)(n_group * widest_cols) * sizeof *c->scaled);
    HT_CHECK(c->chunks && c->energy && c->rows && c->scaled, NOMEM, "activations of %" PRId64 " tokens", n_group);
done:
    return st;
}

/* Hidden states of all tokens: in RAM, or in the work folder when the two that are needed (a layer's inputs, and gradients) are more than was granted. */
static float* states_create(const collector* c) { return c->is_spilled ? ht_work_scratch(c->work, c->n_x * sizeof(float)) : malloc(c->n_x * sizeof(float)); }

static void states_free(const collector* c, float* states)
{
    if (c->is_spilled) { ht_work_scratch_free(states, c->n_x * sizeof(float)); }
    else { free(states); }
}

static ht_status check_hidden(const collector* c, const char* what, int64_t layer, ht_error* err)
{
    const int64_t n = c->n_chunks * c->run.n_ctx * c->run.hparams.n_embd, bad = ht_find_nonfinite(c->x, n) / c->run.hparams.n_embd;
    if (bad >= c->n_chunks * c->run.n_ctx) { return HT_STATUS_OK; }
    return ht_fail(err, HT_STATUS_NUMERIC, "%s is not finite at layer %" PRId64 ", chunk %" PRId64 ", position %" PRId64 " (token id %" PRId32 ")", what, layer,
                   bad / c->run.n_ctx, bad % c->run.n_ctx, c->texts->ids[bad]);
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
    const ht_hparams* h     = &c->run.hparams;
    const int32_t*    ids   = c->texts->ids + chunk * c->run.n_ctx;
    uint64_t          state = c->run.ctx->seed * 0x9E3779B97F4A7C15u + (uint64_t)chunk;
    double            nll   = 0.0;
    const int64_t     n_vocab = h->n_vocab;
    memset(rows, 0, (size_t)n_vocab * sizeof *rows);
    for (int64_t from = 0; from < c->run.n_ctx; from += HEAD_TOKENS) {
        const int64_t n = c->run.n_ctx - from < HEAD_TOKENS ? c->run.n_ctx - from : HEAD_TOKENS;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)n_vocab, (int)h->n_embd, 1.0f, hidden + from * h->n_embd, (int)h->n_embd, c->output, (int)h->n_embd,
                    0.0f, logits, (int)n_vocab);
        for (int64_t t = 0; t < n; t++) {
            float* row = logits + t * n_vocab;
            float  max = 0.0f;
            double log_sum = 0.0, total = 0.0, sum_v = 0.0;
            c->run.ops->log_sum_exp(row, n_vocab, &max, &log_sum);
            if (from + t + 1 < c->run.n_ctx) { nll += (double)max + log_sum - (double)row[ids[from + t + 1]]; }
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
    const ht_hparams* h  = &c->run.hparams;
    const int64_t     n_x = c->run.n_ctx * h->n_embd;
    double            each[GROUP] = { 0 };
    bool              no_memory = false;
#pragma omp parallel num_threads(c->run.ctx->n_threads)
    {
        float* logits = malloc((size_t)max_i64(HEAD_TOKENS * h->n_vocab, n_x) * sizeof *logits); /* later the gradient of a chunk */
        float* dh     = malloc((size_t)n_x * sizeof *dh);
#pragma omp for schedule(dynamic, 1)
        for (int64_t k = 0; k < n; k++) {
            float* x      = chunk_of(c, members[k]);
            float* hidden = c->run.inputs + k * n_x;
            if (!logits || !dh) {
#pragma omp atomic write
                no_memory = true;
                continue;
            }
            for (int64_t t = 0; t < c->run.n_ctx; t++) { c->run.ops->rms_norm(x + t * h->n_embd, c->run.output_norm, h->norm_rms_eps, h->n_embd, hidden + t * h->n_embd); }
            if (!is_comparable(c)) { continue; }
            each[k] = head_chunk(c, members[k], hidden, dh, c->energy + k * c->run.n_ctx, c->rows + k * h->n_vocab, logits);
            float* dx = logits; /* no longer needed */
            memset(dx, 0, (size_t)n_x * sizeof *dx);
            ht_rms_norm_backward(x, c->run.output_norm, h->norm_rms_eps, c->run.n_ctx, h->n_embd, dh, dx);
            memcpy(x, dx, (size_t)n_x * sizeof *dx);
        }
        free(logits);
        free(dh);
    }
    HT_CHECK(!no_memory, NOMEM, "logits of %d tokens", HEAD_TOKENS);
    for (int64_t k = 0; k < n; k++) { *nll += each[k]; }
    if (is_comparable(c)) { c->report.flops += 4.0 * (double)(n * c->run.n_ctx) * (double)h->n_embd * (double)h->n_vocab; }
    s->n_tokens[held_out] += (double)(n * c->run.n_ctx);
    if (!held_out) {
        site_add_inputs(s, c->run.inputs, n * c->run.n_ctx, c->run.ctx->n_threads);
        for (int64_t k = 0; is_comparable(c) && k < n; k++) {
            for (int64_t r = 0; r < h->n_vocab; r++) { s->energy[r] += (double)c->rows[k * h->n_vocab + r]; }
        }
    }
    if (s->hessian[held_out]) { HT_TRY(add_hessian(c, s->hessian[held_out], h->n_embd, c->run.inputs, is_comparable(c) ? c->energy : NULL, 1, n * c->run.n_ctx, err)); }
done:
    return st;
}

static ht_status head(collector* c, ht_error* err)
{
    ht_status         st = HT_STATUS_OK;
    const ht_hparams* h  = &c->run.hparams;
    site              s  = { 0 };
    double            nll = 0.0;
    if (ht_work_has(c->work, "head") && (!is_guided(c) || ht_work_has(c->work, "g_head"))) {
        if (is_guided(c)) { HT_TRY(ht_work_read(c->work, "g_head", c->x, c->n_x * sizeof *c->x, err)); }
        c->report.n_layers_resumed++;
        goto done;
    }
    HT_TRY(site_init(&s, c, c->run.output_name, h->n_vocab, h->n_embd, err));
    HT_TRY(ht_read_matrix(&c->output, c->run.source, c->run.output_name, true, h->n_embd, err));
    for (int held_out = 0; held_out < 2; held_out++) {
        int64_t members[GROUP], next = 0;
        for (int64_t n = next_group(c, held_out, &next, members); n > 0; n = next_group(c, held_out, &next, members)) {
            HT_CHECK(!ht_cancelled(c->run.ctx), CANCELLED, "interrupted; --resume goes on from here");
            HT_TRY(head_group(c, &s, members, n, held_out, &nll, err));
        }
    }
    c->report.nll_mean = nll / (double)(c->n_chunks * (c->run.n_ctx - 1));
    HT_TRY(check_hidden(c, "the gradient", h->n_layers, err));
    if (is_guided(c)) { HT_TRY(ht_work_write(c->work, "g_head", c->x, c->n_x * sizeof *c->x, err)); }
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
    const ht_hparams* h  = &c->run.hparams;
    const int64_t     n_x = c->run.n_ctx * h->n_embd, widest = max_i64(h->n_ff, max_i64(h->n_embd, h->n_heads * h->head_dim));
    bool              no_memory = false;
#pragma omp parallel num_threads(c->run.ctx->n_threads)
    {
        float* y = malloc((size_t)n_x * sizeof *y);
#pragma omp for schedule(dynamic, 1)
        for (int64_t k = 0; k < n; k++) {
            ht_layer_space* s = ht_layer_runner_space(&c->run, omp_get_thread_num(), k);
            const float*    x = inputs_x + members[k] * n_x;
            float*          g = chunk_of(c, members[k]);
            if (!y) {
#pragma omp atomic write
                no_memory = true;
                continue;
            }
            ht_layer_forward(layer, s, x, y);
            if (is_guided(c)) { ht_layer_backward(layer, s, x, g, y); }
            for (int l = 0; is_guided(c) && l < HT_LINEAR_COUNT; l++) {
                measure_gradient(ht_layer_output_gradient(s, (ht_linear_id)l, g), c->run.n_ctx, sites[l].n_rows, c->energy + k * c->run.n_ctx * HT_LINEAR_COUNT + l, HT_LINEAR_COUNT,
                                 c->rows + (k * HT_LINEAR_COUNT + l) * widest);
            }
            memcpy(g, y, (size_t)n_x * sizeof *y);
        }
        free(y);
    }
    HT_CHECK(!no_memory, NOMEM, "activations");
    c->report.flops += (is_guided(c) ? 2.0 : 1.0) * ht_layer_flops(h, n * c->run.n_ctx, c->run.n_ctx);
    for (int l = 0; l < HT_LINEAR_COUNT; l++) {
        site*              s     = &sites[l];
        const ht_linear_id first = first_of_input((ht_linear_id)l);
        const float*       x     = ht_layer_input(ht_layer_runner_space(&c->run, 0, 0), (ht_linear_id)l);
        s->n_tokens[held_out] += (double)(n * c->run.n_ctx);
        if (!held_out && first == (ht_linear_id)l) { site_add_inputs(s, x, n * c->run.n_ctx, c->run.ctx->n_threads); }
        for (int64_t k = 0; is_guided(c) && !held_out && k < n; k++) {
            for (int64_t r = 0; r < s->n_rows; r++) { s->energy[r] += (double)c->rows[(k * HT_LINEAR_COUNT + l) * widest + r]; }
        }
        if (!s->hessian[held_out] || (!is_guided(c) && first != (ht_linear_id)l)) { continue; }
        HT_TRY(add_hessian(c, s->hessian[held_out], s->n_cols, x, is_guided(c) ? c->energy + l : NULL, HT_LINEAR_COUNT, n * c->run.n_ctx, err));
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
        for (int k = 0; k < 2 && s->hessian[k] && !is_guided(c); k++) {
            memcpy(s->hessian[k], from->hessian[k], (size_t)(s->n_cols * s->n_cols) * sizeof *s->hessian[k]);
        }
    }
}

static ht_status layer_sites_init(const collector* c, int64_t index, site* sites, ht_error* err)
{
    ht_status    st = HT_STATUS_OK;
    ht_layer_f32 layer;
    ht_layer_describe(&layer, &c->run.hparams, index);
    for (int l = 0; l < HT_LINEAR_COUNT; l++) { HT_TRY(site_init(&sites[l], c, layer.linears[l].name, layer.linears[l].n_rows, layer.linears[l].n_cols, err)); }
done:
    return st;
}

static void sites_deinit(site* sites, int n)
{
    for (int k = 0; k < n; k++) { site_deinit(&sites[k]); }
}

/*
 * Layer `index` on its inputs inputs_x. Guided: c->x has the gradient of its output, and is left with that of its input. Else inputs_x is c->x itself, and is left with the
 * layer's output.
 */
static ht_status collect_layer(collector* c, int64_t index, const float* inputs_x, ht_error* err)
{
    ht_status    st = HT_STATUS_OK;
    site         sites[HT_LINEAR_COUNT] = { 0 };
    ht_layer_f32 layer = { 0 };
    char         name[64];
    HT_TRY(ht_layer_runner_read(&c->run, &layer, index, err));
    HT_TRY(layer_sites_init(c, index, sites, err));
    for (int held_out = 0; held_out < 2; held_out++) {
        int64_t members[GROUP], next = 0;
        for (int64_t n = next_group(c, held_out, &next, members); n > 0; n = next_group(c, held_out, &next, members)) {
            HT_CHECK(!ht_cancelled(c->run.ctx), CANCELLED, "interrupted; --resume goes on from here");
            HT_TRY(layer_group(c, &layer, sites, inputs_x, members, n, held_out, err));
        }
    }
    share_inputs(c, sites);
    HT_TRY(check_hidden(c, is_guided(c) ? "the gradient" : "the hidden state", index, err));
    if (is_guided(c)) { /* a layer whose sums are there is done: what the next one needs comes before them */
        snprintf(name, sizeof name, "g_%" PRId64, index);
        HT_TRY(ht_work_write(c->work, name, c->x, c->n_x * sizeof *c->x, err));
    }
    snprintf(name, sizeof name, "layer_%" PRId64, index);
    HT_TRY(save_sites(c, name, sites, HT_LINEAR_COUNT, err));
done:
    ht_layer_deinit(&layer);
    sites_deinit(sites, HT_LINEAR_COUNT);
    return st;
}

/*
 * Every layer's input goes to the work folder. Guided statistics come back to all of them; the others are collected on the way, and only the last is of use then.
 */
static ht_status forward(collector* c, ht_error* err)
{
    ht_status         st    = HT_STATUS_OK;
    const ht_hparams* h     = &c->run.hparams;
    ht_layer_f32      layer = { 0 };
    char              name[64];
    int64_t           first = h->n_layers;
    for (; first >= 0; first--) { /* the last layer input that is there already */
        snprintf(name, sizeof name, "x_%" PRId64, first);
        if (ht_work_has(c->work, name)) { break; }
    }
    if (first < 0) {
        HT_TRY(ht_layer_runner_embed(&c->run, c->texts->ids, c->n_chunks * c->run.n_ctx, c->x, err));
        HT_TRY(ht_work_write(c->work, "x_0", c->x, c->n_x * sizeof *c->x, err));
        first = 0;
    } else {
        HT_TRY(ht_work_read(c->work, name, c->x, c->n_x * sizeof *c->x, err));
        c->report.n_layers_resumed += first;
    }
    c->steps_done += (uint64_t)first;
    for (int64_t i = first; i < h->n_layers; i++) {
        HT_CHECK(!ht_cancelled(c->run.ctx), CANCELLED, "interrupted; --resume goes on from here");
        if (is_guided(c)) {
            HT_TRY(ht_layer_runner_read(&c->run, &layer, i, err));
            HT_TRY(ht_layer_runner_forward(&c->run, &layer, c->chunks, c->n_chunks, err));
            c->report.flops += ht_layer_flops(h, c->n_chunks * c->run.n_ctx, c->run.n_ctx);
            ht_layer_deinit(&layer);
            HT_TRY(check_hidden(c, "the hidden state", i, err));
        } else {
            HT_TRY(collect_layer(c, i, c->x, err));
        }
        snprintf(name, sizeof name, "x_%" PRId64, i + 1);
        HT_TRY(ht_work_write(c->work, name, c->x, c->n_x * sizeof *c->x, err));
        snprintf(name, sizeof name, "x_%" PRId64, i);
        if (!is_guided(c)) { ht_work_remove(c->work, name); }
        step_done(c);
    }
done:
    ht_layer_deinit(&layer);
    return st;
}

/* From the head's gradient down to the embedding's. */
static ht_status backward(collector* c, ht_error* err)
{
    ht_status st       = HT_STATUS_OK;
    float*    inputs_x = states_create(c);
    char      name[64];
    int64_t   next = c->run.hparams.n_layers - 1;
    HT_CHECK(inputs_x, NOMEM, "hidden states");
    for (; next >= 0; next--) { /* layers that are done already */
        snprintf(name, sizeof name, "layer_%" PRId64, next);
        if (!ht_work_has(c->work, name)) { break; }
        c->report.n_layers_resumed++;
        step_done(c);
    }
    if (next < c->run.hparams.n_layers - 1) {
        snprintf(name, sizeof name, "g_%" PRId64, next + 1);
        HT_TRY(ht_work_read(c->work, name, c->x, c->n_x * sizeof *c->x, err));
    }
    for (; next >= 0; next--) {
        snprintf(name, sizeof name, "x_%" PRId64, next);
        HT_TRY(ht_work_read(c->work, name, inputs_x, c->n_x * sizeof *inputs_x, err));
        HT_TRY(collect_layer(c, next, inputs_x, err));
        if (next + 2 <= c->run.hparams.n_layers) { /* nobody comes back to these */
            snprintf(name, sizeof name, "g_%" PRId64, next + 1);
            ht_work_remove(c->work, name);
        }
        step_done(c);
    }
done:
    states_free(c, inputs_x);
    return st;
}

/* --- the file --------------------------------------------------------------------------------------------------------------------------------- */

static uint32_t hessian_bits(const collector* c, bool role_1)
{
    const ht_hessian_kind fitted = !is_comparable(c) ? HT_HESSIAN_PLAIN : role_1 ? HT_HESSIAN_GUIDED_1 : HT_HESSIAN_GUIDED;
    const ht_hessian_kind held   = role_1 ? HT_HESSIAN_HELD_OUT_1 : HT_HESSIAN_HELD_OUT;
    if (c->options->kind == HT_COLLECT_IMPORTANCE) { return 0; }
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
    const ht_hessian_kind fitted = !is_comparable(c) ? HT_HESSIAN_PLAIN : role ? HT_HESSIAN_GUIDED_1 : HT_HESSIAN_GUIDED;
    const ht_hessian_kind held   = role ? HT_HESSIAN_HELD_OUT_1 : HT_HESSIAN_HELD_OUT;
    if (with_sums) {
        HT_TRY(ht_statistics_writer_put_sums(w, s->name, s->sum_sq, &s->n_tokens[0], err));
        HT_TRY(ht_statistics_writer_put_max(w, s->name, s->max_abs, err));
    }
    if (is_comparable(c)) { HT_TRY(put_row_weight(w, s, role, err)); }
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

/*
 * The embedding's other role, rows weighed by how often a token occurs: H = mean g g^T where the gradient leaves the embedding, or from the probe the same for all
 * directions.
 */
static ht_status embedding_site(collector* c, site* s, ht_error* err)
{
    ht_status     st = HT_STATUS_OK;
    const int64_t n_embd = c->run.hparams.n_embd;
    HT_TRY(site_init(s, c, "token_embd.weight", c->run.hparams.n_vocab, n_embd, err));
    if (is_guided(c) && c->run.hparams.n_layers > 0) { HT_TRY(ht_work_read(c->work, "g_0", c->x, c->n_x * sizeof *c->x, err)); }
    for (int64_t k = 0; k < c->n_chunks; k++) {
        const int held_out = c->texts->is_held_out[k];
        s->n_tokens[held_out] += (double)c->run.n_ctx;
        if (is_guided(c) && s->hessian[held_out]) { HT_TRY(add_hessian(c, s->hessian[held_out], n_embd, chunk_of(c, k), NULL, 0, c->run.n_ctx, err)); }
        if (held_out) { continue; }
        if (is_guided(c)) { site_add_inputs(s, chunk_of(c, k), c->run.n_ctx, c->run.ctx->n_threads); }
        for (int64_t t = 0; t < c->run.n_ctx; t++) { s->energy[c->texts->ids[k * c->run.n_ctx + t]] += 1.0; }
    }
    for (int k = 0; k < 2 && s->hessian[k] && is_guided(c); k++) {
        for (int64_t i = 0; i < n_embd * n_embd; i++) { s->hessian[k][i] /= s->n_tokens[k] > 0.0 ? s->n_tokens[k] : 1.0; }
    }
    for (int64_t i = 0; i < n_embd && !is_guided(c); i++) {
        s->sum_sq[i]  = s->n_tokens[0];
        s->max_abs[i] = 1.0f;
        for (int k = 0; k < 2 && s->hessian[k]; k++) { s->hessian[k][i * n_embd + i] = c->factors[c->run.hparams.n_layers * HT_LINEAR_COUNT]; }
    }
done:
    return st;
}

/* From plain Hessians to comparable ones: times the probe's factor, all rows alike. */
static void apply_factor(site* s, double factor)
{
    for (int64_t r = 0; r < s->n_rows; r++) { s->energy[r] = 1.0; }
    for (int k = 0; k < 2 && s->hessian[k]; k++) {
        for (int64_t i = 0; i < s->n_cols * s->n_cols; i++) { s->hessian[k][i] *= factor; }
    }
}

/* The factors of all matrices, in the work folder once they are known. */
static ht_status probe(collector* c, ht_error* err)
{
    ht_status    st      = HT_STATUS_OK;
    const size_t n_bytes = (size_t)(c->run.hparams.n_layers * HT_LINEAR_COUNT + 1) * sizeof *c->factors;
    c->factors = malloc(n_bytes);
    HT_CHECK(c->factors, NOMEM, "factors");
    if (ht_work_has(c->work, "probe")) {
        c->report.n_layers_resumed++;
        return ht_work_read(c->work, "probe", c->factors, n_bytes, err);
    }
    HT_TRY(ht_probe_run(c->run.source, c->texts, c->run.ctx, c->factors, err));
    HT_TRY(ht_work_write(c->work, "probe", c->factors, n_bytes, err));
done:
    return st;
}

static void add_shape(const collector* c, ht_statistics_shape* shapes, int64_t* n, const char* name, int64_t n_rows, int64_t n_cols, bool role_0, bool role_1)
{
    ht_statistics_shape* s = &shapes[(*n)++];
    *s = (ht_statistics_shape){ .n_cols = n_cols, .n_mats = 1, .n_rows = n_rows, .has_max = true, .has_row_weight = { role_0 && is_comparable(c), role_1 } };
    snprintf(s->name, sizeof s->name, "%s", name);
    s->hessians = (role_0 ? hessian_bits(c, false) : 0) | (role_1 ? hessian_bits(c, true) : 0);
}

/* The tokens nothing was fitted to, so that quantize can measure its files on them. */
static ht_status put_held_out(const collector* c, ht_meta* meta, ht_error* err)
{
    ht_status     st  = HT_STATUS_OK;
    const int64_t n_ctx = c->run.n_ctx;
    int64_t       n   = 0;
    int32_t*      ids = malloc((size_t)(c->n_chunks * n_ctx + 1) * sizeof *ids);
    HT_CHECK(ids, NOMEM, "held-out tokens");
    for (int64_t k = 0; k < c->n_chunks; k++) {
        if (c->texts->is_held_out[k]) { memcpy(ids + n_ctx * n++, c->texts->ids + k * n_ctx, (size_t)n_ctx * sizeof *ids); }
    }
    HT_TRY(ht_meta_set_values(meta, HT_KEY_HELD_OUT_IDS, HT_META_TYPE_I32, true, (uint64_t)(n * n_ctx), ids, err));
done:
    free(ids);
    return st;
}

static ht_status fill_meta(const collector* c, ht_meta* meta, ht_error* err)
{
    static const char* const kinds[] = { "importance", "plain", "probed", "guided" };
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
    HT_TRY(ht_meta_set_u32(meta, "imatrix.chunk_size", (uint32_t)c->run.n_ctx, err));
    HT_TRY(ht_source_sha256(c->run.source, sha256, err));
    HT_TRY(ht_meta_set_string(meta, "halftone.version", HT_VERSION, err));
    HT_TRY(ht_meta_set_string(meta, "halftone.source.name", ht_source_name(c->run.source), err));
    HT_TRY(ht_meta_set_string(meta, "halftone.source.sha256", sha256, err));
    HT_TRY(ht_meta_set_string(meta, "halftone.calibration.sha256", c->texts->sha256, err));
    HT_TRY(ht_meta_set_string(meta, "halftone.calibration.kind", kinds[c->options->kind], err));
    HT_TRY(ht_meta_set_string(meta, "halftone.calibration.isa", ht_isa_name(c->run.ctx->isa), err));
    HT_TRY(ht_meta_set_u64(meta, "halftone.calibration.seed", c->run.ctx->seed, err));
    if (c->options->kind != HT_COLLECT_IMPORTANCE && has_held_out(c)) { HT_TRY(put_held_out(c, meta, err)); }
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
    const ht_hparams*     h  = &c->run.hparams;
    int64_t               n_shapes = 0;
    site                  sites[HT_LINEAR_COUNT] = { 0 }, head_site = { 0 }, embd = { 0 };
    ht_statistics_writer* w = NULL;
    ht_meta*              meta = ht_meta_create();
    ht_statistics_shape*  shapes = calloc((size_t)(h->n_layers * HT_LINEAR_COUNT + 2), sizeof *shapes);
    const bool            has_embd_role = is_comparable(c);
    char                  step[64];
    HT_CHECK(meta && shapes, NOMEM, "the layout of the statistics");
    for (int64_t i = 0; i < h->n_layers; i++) {
        ht_layer_f32 layer;
        ht_layer_describe(&layer, h, i);
        for (int l = 0; l < HT_LINEAR_COUNT; l++) { add_shape(c, shapes, &n_shapes, layer.linears[l].name, layer.linears[l].n_rows, layer.linears[l].n_cols, true, false); }
    }
    add_shape(c, shapes, &n_shapes, c->run.output_name, h->n_vocab, h->n_embd, true, is_tied(c) && has_embd_role);
    if (!is_tied(c) && has_embd_role) { add_shape(c, shapes, &n_shapes, "token_embd.weight", h->n_vocab, h->n_embd, false, true); }
    HT_TRY(fill_meta(c, meta, err));
    HT_TRY(ht_statistics_writer_create(&w, path, meta, shapes, n_shapes, c->options->force, err));

    HT_TRY(site_init(&head_site, c, c->run.output_name, h->n_vocab, h->n_embd, err));
    HT_TRY(load_sites(c, "head", &head_site, 1, err));
    HT_TRY(put_site(c, w, &head_site, 0, true, err));
    count_zero_columns(c, &head_site);
    c->report.n_tokens          = (int64_t)head_site.n_tokens[0];
    c->report.n_tokens_held_out = (int64_t)head_site.n_tokens[1];
    if (has_embd_role) {
        HT_TRY(embedding_site(c, &embd, err));
        HT_TRY(put_site(c, w, &embd, 1, !is_tied(c), err));
    }
    for (int64_t i = 0; i < h->n_layers; i++) {
        snprintf(step, sizeof step, "layer_%" PRId64, i);
        HT_TRY(layer_sites_init(c, i, sites, err));
        HT_TRY(load_sites(c, step, sites, HT_LINEAR_COUNT, err));
        for (int l = 0; l < HT_LINEAR_COUNT; l++) {
            if (c->factors) { apply_factor(&sites[l], c->factors[i * HT_LINEAR_COUNT + l]); }
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
    ht_status st = ht_source_sha256(c->run.source, source, err);
    if (st != HT_STATUS_OK) { return st; }
    snprintf(key, sizeof key, "version %s\nsource %s\ntext %s\nseed %" PRIu64 "\nkind %d\nisa %s\n", HT_VERSION, source, c->texts->sha256, c->run.ctx->seed,
             (int)c->options->kind, ht_isa_name(c->run.ctx->isa));
    return ht_work_folder_open(&c->work, path, key, c->options->resume, err);
}

ht_status ht_collect_run(const ht_source* source, const ht_calib_texts* texts, const char* path, const ht_collect_options* options,
                         const ht_ctx* ctx, ht_collect_report* report, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    collector c  = { .texts = texts, .options = options };
    HT_TRY(prepare(&c, source, ctx, err));
    HT_TRY(open_work(&c, path, err));
    c.is_spilled = 2 * (uint64_t)c.n_x * sizeof *c.x > (options->memory_bytes > 0 ? options->memory_bytes : DEFAULT_STATES);
    c.x          = states_create(&c);
    HT_CHECK(c.x, NOMEM, "hidden states of %" PRId64 " tokens", c.n_chunks * c.run.n_ctx);
    for (int64_t k = 0; k < c.n_chunks; k++) { c.chunks[k] = c.x + k * c.run.n_ctx * c.run.hparams.n_embd; }
    openblas_set_num_threads(1); /* threads share the work by chunks and panels, in an order that does not depend on how many there are */
    c.n_steps = (options->kind == HT_COLLECT_GUIDED ? 2 : 1) * (uint64_t)c.run.hparams.n_layers;
    double start_s = now_s();
    HT_TRY(forward(&c, err));
    c.report.forward_s = now_s() - start_s;
    start_s            = now_s();
    HT_TRY(head(&c, err));
    if (options->kind == HT_COLLECT_GUIDED) { HT_TRY(backward(&c, err)); }
    if (options->kind == HT_COLLECT_PROBED) { HT_TRY(probe(&c, err)); }
    c.report.backward_s = now_s() - start_s;
    HT_TRY(write_file(&c, path, err));
    ht_work_folder_remove(c.work);
    *report = c.report;
done:
    ht_work_folder_close(c.work);
    if (c.run.ctx) { ht_layer_runner_deinit(&c.run); }
    states_free(&c, c.x);
    free(c.chunks);
    free(c.energy);
    free(c.rows);
    free(c.scaled);
    free(c.factors);
    if (st != HT_STATUS_OK && err) { ht_error_set_file(err, ht_source_path(source)); }
    return st;
}
