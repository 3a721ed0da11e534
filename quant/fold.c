#include "quant/fold.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/decode.h"
#include "quant/encode.h"

enum { MAX_CONSUMERS = 3, SAMPLE_ROWS = 64, TILE = 16, N_ALPHAS = 4 };

/* The automatic method folds only where error feedback, too, gains at least this share on the sample: its noise is of that size. */
static const double least_gain = 0.02;

/* 0 first. The study's choice over this grid: 0.25 in 34 of 40 groups, 0 in 5, 0.5 in 1. */
static const double alphas[N_ALPHAS] = { 0.0, 0.25, 0.5, 0.75 };

/* Scales outside of this range could overflow half-precision block scales of the weights they multiply. */
static const float scale_min = 1.0f / 32.0f, scale_max = 32.0f;

void ht_fold_scales(const float* mean_square, int64_t n, double alpha, float* scales)
{
    double  sum    = 0.0;
    int64_t n_live = 0;
    for (int64_t i = 0; i < n; i++) {
        const double m = (double)mean_square[i];
        if (!(m > 0.0) || !isfinite(m)) { continue; }
        sum += log(m);
        n_live++;
    }
    const double middle = n_live > 0 ? sum / (double)n_live : 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double m = (double)mean_square[i];
        scales[i] = 1.0f;
        if (!(m > 0.0) || !isfinite(m)) { continue; }
        scales[i] = (float)exp(0.5 * alpha * (log(m) - middle));
        scales[i] = scales[i] < scale_min ? scale_min : scales[i] > scale_max ? scale_max : scales[i];
    }
}

void ht_fold_rows(const ht_fold* f, float* x, int64_t row, int64_t n_rows, int64_t n)
{
    for (int64_t r = 0; r < n_rows; r++) {
        const float factor = f->rows ? f->rows[row + r] : 1.0f;
        for (int64_t i = 0; i < n; i++) { x[r * n + i] *= factor * (f->columns ? f->columns[i] : 1.0f); }
    }
}

static void fold_hessian(float* h, const float* columns, int64_t n)
{
    for (int64_t i = 0; h && i < n; i++) {
        for (int64_t j = 0; j < n; j++) { h[i * n + j] /= columns[i] * columns[j]; }
    }
}

ht_status ht_fold_statistics(const ht_fold* f, ht_tensor_statistics* t, int64_t n_rows, ht_error* err)
{
    if (f->columns) {
        for (int64_t i = 0; t->importance && i < t->n * t->n_mats; i++) { t->importance[i] /= f->columns[i % t->n] * f->columns[i % t->n]; }
        if (t->n_roles != 1) { fold_hessian(t->hessian, f->columns, t->n); }
        for (int k = 0; k < t->n_roles; k++) {
            fold_hessian(t->roles[k].hessian, f->columns, t->n);
            fold_hessian(t->roles[k].held_out, f->columns, t->n);
        }
    }
    if (f->rows && t->n_roles > 0) {
        const float* old = t->roles[0].row_weight;
        free(t->folded_weight);
        t->folded_weight = malloc((size_t)n_rows * sizeof(float));
        if (!t->folded_weight) { return ht_fail(err, HT_STATUS_NOMEM, "row weights"); }
        for (int64_t r = 0; r < n_rows; r++) { t->folded_weight[r] = (old ? old[r] : 1.0f) / (f->rows[r] * f->rows[r]); }
        t->roles[0].row_weight = t->folded_weight;
    }
    return HT_STATUS_OK;
}

/* --- groups ------------------------------------------------------------------------------------------------------------------------------ */

/*
 * One producer of an input and the matrices that consume it; indexes of the source's tensors, -1: none. With grouped queries a row of attn_v is the input of several
 * columns of attn_output: head_dim and n_repeat tell which.
 */
typedef struct group {
    int64_t producer, consumers[MAX_CONSUMERS];
    int     n_consumers;
    bool    by_rows; /* the producer's rows are divided, else its columns (a norm) */
    int64_t head_dim, n_repeat; /* 0, 1: column i is fed by channel i */
} group;

static int64_t channel_of(const group* g, int64_t column)
{
    return g->head_dim > 0 ? column / g->head_dim / g->n_repeat * g->head_dim + column % g->head_dim : column;
}

static int64_t index_of(const ht_source* source, int64_t layer, const char* name)
{
    char full[HT_GGUF_MAX_NAME + 1];
    snprintf(full, sizeof full, "blk.%" PRId64 ".%s", layer, name);
    for (int64_t i = 0; i < ht_source_n_tensors(source); i++) {
        if (strcmp(ht_source_tensor_at(source, i)->info.name, full) == 0) { return i; }
    }
    return -1;
}

typedef struct search {
    const ht_source*      source;
    const ht_calibration* calibration;
    const ht_type*        types;
    const ht_ctx*         ctx;
    ht_folding*           folding;
} search;

/* How the sample is rounded: with importance, or with error feedback in its shortest form. */
typedef enum probe_rounding { PROBE_IMPORTANCE, PROBE_FEEDBACK } probe_rounding;

/* Sampled rows i * TILE … of a matrix: read, folded, rounded, and their costs added up. */
typedef struct sampled_matrix {
    const search*           search;
    const ht_source_tensor* tensor;
    const ht_fold*          fold;
    ht_tensor_statistics    statistics;
    const float*            diagonal; /* importance */
    ht_rounding*            rounding; /* NULL: with importance */
    ht_type                 type;
    int64_t                 n, n_rows, step;
} sampled_matrix;

static ht_status tile_cost(const sampled_matrix* m, int64_t from, double* cost, ht_error* err)
{
    ht_status        st       = HT_STATUS_OK;
    const uint32_t   features = ht_isa_features(m->search->ctx->isa);
    const int64_t    n = m->n, rows = m->n_rows - from < TILE ? m->n_rows - from : TILE;
    const size_t     row_bytes = (size_t)(n / ht_type_get((uint32_t)m->type)->block_elems) * (size_t)ht_type_get((uint32_t)m->type)->block_bytes;
    ht_round_worker* worker = ht_round_worker_create(n);
    float *          x = malloc((size_t)(TILE * n) * sizeof *x), *back = malloc((size_t)(TILE * n) * sizeof *back);
    uint8_t*         blocks = malloc(TILE * row_bytes);
    HT_CHECK(worker && x && back && blocks, NOMEM, "a sample of rows");
    for (int64_t k = 0; k < rows; k++) {
        HT_TRY(ht_source_read_rows_f32(m->search->source, m->tensor, (from + k) * m->step, 1, x + k * n, err));
        ht_fold_rows(m->fold, x + k * n, (from + k) * m->step, 1, n);
        if (!m->rounding) { ht_encode_row_get(m->type, features)(x + k * n, blocks + (size_t)k * row_bytes, n, m->diagonal); }
    }
    if (m->rounding) { ht_round_rows(m->rounding, worker, m->type, features, x, rows, blocks, NULL); }
    ht_decode_row_get(m->type)(blocks, back, rows * n);
    *cost = 0.0;
    for (int64_t k = 0; k < rows; k++) { *cost += ht_tensor_cost(&m->statistics, true, worker, features, x + k * n, back + k * n, (from + k) * m->step, 1); }
done:
    ht_round_worker_free(worker);
    free(x);
    free(back);
    free(blocks);
    return st;
}

/* The matrix's cost on held-out text with its columns times `scales`, from a sample of rows. */
static ht_status consumer_cost(const search* s, int64_t index, const float* scales, probe_rounding how, double* cost, ht_error* err)
{
    ht_status               st     = HT_STATUS_OK;
    const ht_source_tensor* tensor = ht_source_tensor_at(s->source, index);
    const int64_t           n = tensor->info.ne[0], n_all = ht_tensor_n_rows(&tensor->info), n_rows = n_all < SAMPLE_ROWS ? n_all : SAMPLE_ROWS;
    const ht_round_options  feedback = { HT_ROUND_GPTQ, s->calibration->damping, 0.1, 1 };
    float *                 columns = malloc((size_t)n * sizeof *columns), *diagonal = malloc((size_t)n * sizeof *diagonal);
    ht_fold                 fold   = { columns, s->folding->folds[index].rows };
    sampled_matrix          m      = { .search = s, .tensor = tensor, .fold = &fold, .diagonal = diagonal, .type = s->types[index], .n = n, .n_rows = n_rows, .step = n_all / n_rows };
    double                  costs[SAMPLE_ROWS / TILE] = { 0.0 };
    ht_status               each[SAMPLE_ROWS / TILE]  = { HT_STATUS_OK };
    ht_error                why[SAMPLE_ROWS / TILE];
    HT_CHECK(columns && diagonal, NOMEM, "a sample of rows");
    memcpy(columns, scales, (size_t)n * sizeof *columns);
    HT_TRY(ht_tensor_statistics_init(&m.statistics, s->calibration->statistics, &tensor->info, true, err));
    HT_TRY(ht_fold_statistics(&fold, &m.statistics, n_all, err));
    const float* h = m.statistics.hessian;
    for (int64_t i = 0; i < n && h; i++) { diagonal[i] = h[i * n + i] > 0.0f ? h[i * n + i] : 0.0f; }
    if (how == PROBE_FEEDBACK) {
        st = ht_rounding_create(&m.rounding, h, n, NULL, &feedback, NULL, err);
        if (st != HT_STATUS_OK) { goto done; }
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(s->ctx->n_threads)
    for (int64_t k = 0; k < (n_rows + TILE - 1) / TILE; k++) {
        why[k]  = (ht_error)HT_ERROR_INIT;
        each[k] = tile_cost(&m, k * TILE, &costs[k], &why[k]);
    }
    *cost = 0.0;
    for (int64_t k = 0; k < (n_rows + TILE - 1) / TILE; k++) {
        if (each[k] != HT_STATUS_OK) {
            if (err) { *err = why[k]; }
            st = each[k];
            goto done;
        }
        *cost += costs[k] * (double)n_all / (double)n_rows;
    }
done:
    ht_rounding_free(m.rounding);
    ht_tensor_statistics_deinit(&m.statistics);
    free(columns);
    free(diagonal);
    return st;
}

static float* copy_of(const float* values, int64_t n, bool inverse)
{
    float* p = malloc((size_t)n * sizeof *p);
    for (int64_t i = 0; p && i < n; i++) { p[i] = inverse ? 1.0f / values[i] : values[i]; }
    return p;
}

static bool can_fold(const search* s, const group* g)
{
    if (g->producer < 0) { return false; }
    for (int k = 0; k < g->n_consumers; k++) {
        if (g->consumers[k] < 0) { return false; }
        const ht_tensor_info*      info = &ht_source_tensor_at(s->source, g->consumers[k])->info;
        const ht_statistics_entry* e    = ht_statistics_find(s->calibration->statistics, info->name);
        if (!ht_type_get(s->types[g->consumers[k]])->is_quantized || !e || info->n_dims != 2 || !(e->has_hessian[HT_HESSIAN_GUIDED] || e->has_hessian[HT_HESSIAN_PLAIN])) { return false; }
    }
    const ht_tensor_info* producer = &ht_source_tensor_at(s->source, g->producer)->info;
    const int64_t         n        = channel_of(g, ht_source_tensor_at(s->source, g->consumers[0])->info.ne[0] - 1) + 1;
    return g->by_rows ? producer->n_dims == 2 && producer->ne[1] == n : producer->n_dims == 1 && producer->ne[0] == n;
}

/* Mean squares of the channels: of the columns that a channel feeds, the mean. */
static void channel_means(const group* g, const ht_statistics_entry* e, const float* columns, int64_t n_channels, float* means)
{
    memset(means, 0, (size_t)n_channels * sizeof *means);
    for (int64_t i = 0; i < e->n_cols; i++) { means[channel_of(g, i)] += columns[i] / (float)g->n_repeat; }
}

static ht_status group_cost(const search* s, const group* g, const float* columns, probe_rounding how, double* cost, ht_error* err)
{
    *cost = 0.0;
    for (int k = 0; k < g->n_consumers; k++) {
        double          one = 0.0;
        const ht_status st  = consumer_cost(s, g->consumers[k], columns, how, &one, err);
        if (st != HT_STATUS_OK) { return st; }
        *cost += one;
    }
    return HT_STATUS_OK;
}

static ht_status search_group(const search* s, const group* g, ht_error* err)
{
    ht_status     st = HT_STATUS_OK;
    double        costs[N_ALPHAS] = { 0.0 }, plain = 0.0, folded = 0.0;
    int           best = 0;
    const ht_statistics_entry* e = ht_statistics_find(s->calibration->statistics, ht_source_tensor_at(s->source, g->consumers[0])->info.name);
    const int64_t n = e->n_cols, n_channels = channel_of(g, n - 1) + 1;
    float *       mean_square = malloc((size_t)n * sizeof *mean_square), *means = malloc((size_t)n * sizeof *means);
    float *       scales = malloc((size_t)n * sizeof *scales), *columns = malloc((size_t)n * sizeof *columns);
    HT_CHECK(mean_square && means && scales && columns, NOMEM, "scales");
    (void)ht_statistics_importance(e, 0, mean_square);
    channel_means(g, e, mean_square, n_channels, means);
    for (int a = 0; a < N_ALPHAS; a++) {
        ht_fold_scales(means, n_channels, alphas[a], scales);
        for (int64_t i = 0; i < n; i++) { columns[i] = scales[channel_of(g, i)]; }
        HT_TRY(group_cost(s, g, columns, PROBE_IMPORTANCE, &costs[a], err));
        if (isfinite(costs[a]) && costs[a] < costs[best]) { best = a; } /* a candidate that overflows drops out; identity is never left for it */
    }
    ht_fold_scales(means, n_channels, alphas[best], scales);
    if (best > 0 && s->calibration->method == HT_METHOD_AUTO) { /* what helps importance rounding need not help error feedback */
        for (int64_t i = 0; i < n; i++) { columns[i] = 1.0f; }
        st = group_cost(s, g, columns, PROBE_FEEDBACK, &plain, err);
        for (int64_t i = 0; i < n; i++) { columns[i] = scales[channel_of(g, i)]; }
        if (st == HT_STATUS_OK) { st = group_cost(s, g, columns, PROBE_FEEDBACK, &folded, err); }
        if (st == HT_STATUS_NUMERIC) { /* one of the two cannot be had */
            st = HT_STATUS_OK;
            if (err) { *err = (ht_error)HT_ERROR_INIT; }
            plain = folded = 0.0;
        }
        if (st != HT_STATUS_OK) { goto done; }
        if (!(folded < (1.0 - least_gain) * plain)) { best = 0; }
    }
    s->folding->n_groups++;
    s->folding->cost_identity += costs[0];
    s->folding->cost += costs[best];
    if (best == 0) { goto done; }
    for (int64_t i = 0; i < n; i++) { columns[i] = scales[channel_of(g, i)]; }
    for (int k = 0; k < g->n_consumers; k++) {
        s->folding->folds[g->consumers[k]].columns = copy_of(columns, n, false);
        HT_CHECK(s->folding->folds[g->consumers[k]].columns, NOMEM, "scales");
    }
    ht_fold* producer = &s->folding->folds[g->producer];
    float**  to       = g->by_rows ? &producer->rows : &producer->columns;
    *to = copy_of(scales, n_channels, true);
    HT_CHECK(*to, NOMEM, "scales");
    s->folding->n_folded++;
done:
    free(mean_square);
    free(means);
    free(scales);
    free(columns);
    return st;
}

/* attn_v -> attn_output. Needs the number of heads, to know which columns a row feeds. */
static group value_group(const ht_source* source, int64_t layer)
{
    group             g      = { index_of(source, layer, "attn_v.weight"), { index_of(source, layer, "attn_output.weight") }, 1, true, 0, 1 };
    const char*       arch   = NULL;
    char              key[128];
    int64_t           n_heads = 0;
    ht_error          ignored = HT_ERROR_INIT;
    const ht_meta_kv* kv      = NULL;
    if (ht_meta_get_string(ht_source_meta(source), "general.architecture", true, &arch, &ignored) == HT_STATUS_OK) {
        snprintf(key, sizeof key, "%s.attention.head_count", arch);
        kv = ht_meta_find(ht_source_meta(source), key);
        if (kv && !kv->is_array) { (void)ht_meta_get_i64(ht_source_meta(source), key, true, &n_heads, &ignored); }
    }
    if (g.producer < 0 || g.consumers[0] < 0 || index_of(source, layer, "attn_v.bias") >= 0) { n_heads = 0; }
    const int64_t n_cols = n_heads > 0 ? ht_source_tensor_at(source, g.consumers[0])->info.ne[0] : 0, n_rows = n_heads > 0 ? ht_source_tensor_at(source, g.producer)->info.ne[1] : 0;
    if (n_heads <= 0 || n_rows <= 0 || n_cols % n_heads != 0 || n_rows % (n_cols / n_heads) != 0 || n_cols % n_rows != 0) {
        g.producer = -1;
        return g;
    }
    g.head_dim = n_cols / n_heads;
    g.n_repeat = n_cols / n_rows;
    return g;
}

ht_status ht_folding_search(ht_folding* out, const ht_source* source, const ht_calibration* calibration, const ht_type* types, const ht_ctx* ctx, ht_error* err)
{
    ht_status  st = HT_STATUS_OK;
    ht_folding f  = { .n_tensors = ht_source_n_tensors(source) };
    search     s  = { source, calibration, types, ctx, &f };
    f.folds = calloc((size_t)f.n_tensors + 1, sizeof *f.folds);
    HT_CHECK(f.folds, NOMEM, "scales");
    for (int64_t layer = 0; index_of(source, layer, "ffn_down.weight") >= 0; layer++) {
        const bool has_bias = index_of(source, layer, "ffn_up.bias") >= 0; /* a bias of ffn_up would have to be divided too */
        const group groups[] = { /* those that divide rows first: the norms' groups see them */
            { has_bias ? -1 : index_of(source, layer, "ffn_up.weight"), { index_of(source, layer, "ffn_down.weight") }, 1, true, 0, 1 },
            value_group(source, layer),
            { index_of(source, layer, "attn_norm.weight"),
              { index_of(source, layer, "attn_q.weight"), index_of(source, layer, "attn_k.weight"), index_of(source, layer, "attn_v.weight") }, 3, false, 0, 1 },
            { index_of(source, layer, "ffn_norm.weight"), { index_of(source, layer, "ffn_gate.weight"), index_of(source, layer, "ffn_up.weight") }, 2, false, 0, 1 },
        };
        HT_CHECK(!ht_cancelled(ctx), CANCELLED, "interrupted");
        for (size_t k = 0; k < sizeof groups / sizeof *groups; k++) {
            if (can_fold(&s, &groups[k])) { HT_TRY(search_group(&s, &groups[k], err)); }
        }
        ht_progress(ctx, "searching scales", (uint64_t)layer + 1, (uint64_t)layer + 2);
    }
    *out = f;
    f    = (ht_folding){ 0 };
done:
    ht_folding_deinit(&f);
    return st;
}

void ht_folding_deinit(ht_folding* f)
{
    if (!f) { return; }
    for (int64_t i = 0; f->folds && i < f->n_tensors; i++) {
        free(f->folds[i].columns);
        free(f->folds[i].rows);
    }
    free(f->folds);
    *f = (ht_folding){ 0 };
}
