#include "quant/fold.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/decode.h"
#include "quant/encode.h"

enum { MAX_CONSUMERS = 3, SAMPLE_ROWS = 64, N_ALPHAS = 4 };

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

/* One producer of an input and the matrices that consume it; indexes of the source's tensors, -1: none. */
typedef struct group {
    int64_t producer, consumers[MAX_CONSUMERS];
    int     n_consumers;
    bool    by_rows; /* the producer's rows are divided, else its columns (a norm) */
} group;

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

/* The matrix's cost with its columns times `scales`, on a sample of rows, as the calibration's method rounds it (importance rounding for the search). */
static ht_status consumer_cost(const search* s, int64_t index, const float* scales, double* cost, ht_error* err)
{
    ht_status               st     = HT_STATUS_OK;
    const ht_source_tensor* tensor = ht_source_tensor_at(s->source, index);
    const int64_t           n = tensor->info.ne[0], n_all = ht_tensor_n_rows(&tensor->info), n_rows = n_all < SAMPLE_ROWS ? n_all : SAMPLE_ROWS, step = n_all / n_rows;
    const ht_type           type = s->types[index];
    const uint32_t          features = ht_isa_features(s->ctx->isa);
    const ht_fold           earlier = s->folding->folds[index];
    ht_fold                 fold   = { NULL, earlier.rows };
    ht_tensor_statistics    t      = { 0 };
    ht_round_worker*        worker = ht_round_worker_create(n);
    float *                 x = malloc((size_t)n * sizeof *x), *back = malloc((size_t)n * sizeof *back), *columns = malloc((size_t)n * sizeof *columns), *diagonal = malloc((size_t)n * sizeof *diagonal);
    void*                   blocks = malloc((size_t)n * sizeof(float));
    HT_CHECK(worker && x && back && columns && diagonal && blocks, NOMEM, "a sample of rows");
    memcpy(columns, scales, (size_t)n * sizeof *columns);
    fold.columns = columns;
    HT_TRY(ht_tensor_statistics_init(&t, s->calibration->statistics, &tensor->info, true, err));
    HT_TRY(ht_fold_statistics(&fold, &t, n_all, err));
    *cost = 0.0;
    for (int64_t i = 0; i < n && t.hessian; i++) { diagonal[i] = t.hessian[i * n + i] > 0.0f ? t.hessian[i * n + i] : 0.0f; }
    for (int64_t k = 0; k < n_rows; k++) {
        HT_TRY(ht_source_read_rows_f32(s->source, tensor, k * step, 1, x, err));
        ht_fold_rows(&fold, x, k * step, 1, n);
        ht_encode_row_get(type, features)(x, blocks, n, diagonal);
        ht_decode_row_get(type)(blocks, back, n);
        *cost += ht_tensor_cost(&t, true, worker, features, x, back, k * step, 1) * (double)n_all / (double)n_rows;
    }
done:
    ht_tensor_statistics_deinit(&t);
    ht_round_worker_free(worker);
    free(x);
    free(back);
    free(columns);
    free(diagonal);
    free(blocks);
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
    const int64_t         n        = ht_source_tensor_at(s->source, g->consumers[0])->info.ne[0];
    return g->by_rows ? producer->n_dims == 2 && producer->ne[1] == n : producer->n_dims == 1 && producer->ne[0] == n;
}

static ht_status search_group(const search* s, const group* g, ht_error* err)
{
    ht_status     st = HT_STATUS_OK;
    double        costs[N_ALPHAS] = { 0.0 };
    int           best = 0;
    const int64_t n = ht_source_tensor_at(s->source, g->consumers[0])->info.ne[0];
    const ht_statistics_entry* e = ht_statistics_find(s->calibration->statistics, ht_source_tensor_at(s->source, g->consumers[0])->info.name);
    float *       mean_square = malloc((size_t)n * sizeof *mean_square), *scales = malloc((size_t)n * sizeof *scales);
    HT_CHECK(mean_square && scales, NOMEM, "scales");
    (void)ht_statistics_importance(e, 0, mean_square);
    for (int a = 0; a < N_ALPHAS; a++) {
        ht_fold_scales(mean_square, n, alphas[a], scales);
        for (int k = 0; k < g->n_consumers; k++) {
            double cost = 0.0;
            HT_TRY(consumer_cost(s, g->consumers[k], scales, &cost, err));
            costs[a] += cost;
        }
        if (isfinite(costs[a]) && costs[a] < costs[best]) { best = a; } /* a candidate that overflows drops out; identity is never left for it */
    }
    s->folding->n_groups++;
    s->folding->cost_identity += costs[0];
    s->folding->cost += costs[best];
    if (best == 0) { goto done; }
    ht_fold_scales(mean_square, n, alphas[best], scales);
    for (int k = 0; k < g->n_consumers; k++) {
        s->folding->folds[g->consumers[k]].columns = copy_of(scales, n, false);
        HT_CHECK(s->folding->folds[g->consumers[k]].columns, NOMEM, "scales");
    }
    ht_fold* producer = &s->folding->folds[g->producer];
    float**  to       = g->by_rows ? &producer->rows : &producer->columns;
    *to = copy_of(scales, n, true);
    HT_CHECK(*to, NOMEM, "scales");
    s->folding->n_folded++;
done:
    free(mean_square);
    free(scales);
    return st;
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
        group      groups[3] = {
            { index_of(source, layer, "ffn_up.weight"), { index_of(source, layer, "ffn_down.weight") }, 1, true },
            { index_of(source, layer, "attn_norm.weight"),
              { index_of(source, layer, "attn_q.weight"), index_of(source, layer, "attn_k.weight"), index_of(source, layer, "attn_v.weight") }, 3, false },
            { index_of(source, layer, "ffn_norm.weight"), { index_of(source, layer, "ffn_gate.weight"), index_of(source, layer, "ffn_up.weight") }, 2, false },
        };
        HT_CHECK(!ht_cancelled(ctx), CANCELLED, "interrupted");
        for (int k = 0; k < 3; k++) {
            if (!can_fold(&s, &groups[k]) || (k == 0 && has_bias)) { continue; }
            HT_TRY(search_group(&s, &groups[k], err));
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
