#include "quant/calibrated.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/decode.h"
#include "quant/encode.h"
#include "quant/fold.h"

static const char* const method_names[] = { "rtn", "imatrix", "gptq", "auto", "awq", "awq+gptq" };

const char* ht_method_name(ht_method method) { return method_names[method]; }

bool ht_method_folds(ht_method method) { return method == HT_METHOD_AWQ || method == HT_METHOD_AWQ_GPTQ || method == HT_METHOD_AUTO; }
bool ht_method_needs_hessians(ht_method method) { return method != HT_METHOD_RTN && method != HT_METHOD_IMATRIX; }

bool ht_method_find(const char* name, ht_method* out)
{
    for (int k = 0; k < (int)(sizeof method_names / sizeof *method_names); k++) {
        if (strcmp(name, method_names[k]) == 0) {
            *out = (ht_method)k;
            return true;
        }
    }
    return false;
}

/* --- the automatic choice ------------------------------------------------------------------------------------------------------------ */

/* What is tried. Shrinking the Hessian to its diagonal and more damping both trust its off-diagonal part less. */
static const ht_round_candidate tried[] = {
    { { HT_ROUND_IMPORTANCE, 0.01, 0.0, 0 }, "imatrix", 0.0 },
    { { HT_ROUND_GPTQ, 0.01, 0.0, 1 }, "gptq", 0.0 },
    { { HT_ROUND_GPTQ, 0.1, 0.0, 1 }, "gptq damping 0.1", 0.0 },
    { { HT_ROUND_GPTQ, 0.01, 0.1, 1 }, "gptq shrink 0.1", 0.0 },
    { { HT_ROUND_GPTQ, 0.01, 0.3, 1 }, "gptq shrink 0.3", 0.0 },
};
enum { N_TRIED = sizeof tried / sizeof *tried, SAMPLE_ROWS = 96 };

/* Rows spread evenly over the tensor: first rows of equal stretches. */
typedef struct row_sample {
    float*  x;
    int64_t step, n_rows;
} row_sample;

static ht_status sample_rows(row_sample* s, const ht_fold* fold, const ht_source* source, const ht_source_tensor* tensor, ht_error* err)
{
    ht_status     st    = HT_STATUS_OK;
    const int64_t n_all = ht_tensor_n_rows(&tensor->info), n = tensor->info.ne[0];
    s->n_rows = n_all < SAMPLE_ROWS ? n_all : SAMPLE_ROWS;
    s->step   = n_all / s->n_rows;
    s->x      = malloc((size_t)(s->n_rows * n) * sizeof *s->x);
    HT_CHECK(s->x, NOMEM, "a sample of rows");
    for (int64_t r = 0; r < s->n_rows; r++) {
        HT_TRY(ht_source_read_rows_f32(source, tensor, r * s->step, 1, s->x + r * n, err));
        if (fold) { ht_fold_rows(fold, s->x + r * n, r * s->step, 1, n); }
    }
done:
    return st;
}

static ht_status try_candidate(ht_round_candidate* c, const ht_tensor_statistics* t, const row_sample* s, ht_type type, uint32_t features, double scale,
                               ht_error* err)
{
    ht_status        st     = HT_STATUS_OK;
    ht_rounding*     r      = NULL;
    ht_round_worker* worker = ht_round_worker_create(t->n);
    const size_t     bytes  = (size_t)(t->n / ht_type_get((uint32_t)type)->block_elems) * (size_t)ht_type_get((uint32_t)type)->block_bytes;
    uint8_t*         blocks = malloc((size_t)s->n_rows * bytes);
    float*           back   = malloc((size_t)(s->n_rows * t->n) * sizeof *back);
    HT_CHECK(worker && blocks && back, NOMEM, "a sample of rows");
    HT_TRY(ht_rounding_create(&r, t->hessian, t->n, NULL, &c->options, NULL, err));
    ht_round_rows(r, worker, type, features, s->x, s->n_rows, blocks, NULL);
    ht_decode_row_get(type)(blocks, back, s->n_rows * t->n);
    c->cost = 0.0;
    for (int64_t k = 0; k < s->n_rows; k++) {
        c->cost += scale * ht_tensor_cost(t, true, worker, features, s->x + k * t->n, back + k * t->n, k * s->step, 1);
    }
done:
    ht_rounding_free(r);
    ht_round_worker_free(worker);
    free(blocks);
    free(back);
    return st;
}

static ht_status choose(ht_tensor_rounding* out, const ht_calibration* calibration, const ht_tensor_statistics* t, const ht_fold* fold, const ht_source* source,
                        const ht_source_tensor* tensor, ht_type type, const ht_ctx* ctx, ht_error* err)
{
    ht_status  st          = HT_STATUS_OK;
    row_sample s           = { 0 };
    ht_status  each[N_TRIED];
    ht_error   why[N_TRIED];
    HT_TRY(sample_rows(&s, fold, source, tensor, err));
    const double scale = (double)ht_tensor_n_rows(&tensor->info) / (double)s.n_rows;
#pragma omp parallel for schedule(dynamic, 1) num_threads(ctx->n_threads)
    for (int k = 0; k < N_TRIED; k++) {
        why[k]             = (ht_error)HT_ERROR_INIT;
        out->candidates[k] = tried[k];
        out->candidates[k].options.n_sweeps = calibration->n_sweeps;
        each[k]            = try_candidate(&out->candidates[k], t, &s, type, ht_isa_features(ctx->isa), scale, &why[k]);
    }
    out->n_candidates = N_TRIED;
    for (int k = 0; k < N_TRIED; k++) {
        if (each[k] == HT_STATUS_NUMERIC && k > 0) { /* this one cannot be had; importance rounding always can */
            out->candidates[k].cost = INFINITY;
        } else if (each[k] != HT_STATUS_OK) {
            if (err) { *err = why[k]; }
            st = each[k];
            goto done;
        }
        if (out->candidates[k].cost < out->candidates[out->chosen].cost) { out->chosen = k; }
    }
done:
    free(s.x);
    return st;
}

/* --- one tensor --------------------------------------------------------------------------------------------------------------------- */

ht_status ht_tensor_rounding_init(ht_tensor_rounding* out, const ht_calibration* calibration, const ht_tensor_statistics* t, const ht_fold* fold,
                                  const ht_source* source, const ht_source_tensor* tensor, ht_type type, const ht_ctx* ctx, ht_error* err)
{
    ht_status          st = HT_STATUS_OK;
    ht_tensor_rounding r  = { .statistics = t, .method = calibration->method };
    if (!t->hessian && r.method != HT_METHOD_RTN) { r.method = HT_METHOD_IMATRIX; }
    if (!t->importance) { r.method = HT_METHOD_RTN; }
    if (r.method == HT_METHOD_AWQ) { r.method = HT_METHOD_IMATRIX; }
    if (r.method == HT_METHOD_AWQ_GPTQ) { r.method = HT_METHOD_GPTQ; }
    ht_round_options options = { HT_ROUND_GPTQ, calibration->damping, 0.0, calibration->n_sweeps };
    if (r.method == HT_METHOD_AUTO) {
        HT_TRY(choose(&r, calibration, t, fold, source, tensor, type, ctx, err));
        options  = r.candidates[r.chosen].options;
        r.method = HT_METHOD_GPTQ;
    }
    if (r.method == HT_METHOD_GPTQ) { HT_TRY(ht_rounding_create(&r.rounding, t->hessian, t->n, NULL, &options, &r.notes, err)); }
    *out       = r;
    r.rounding = NULL;
done:
    ht_tensor_rounding_deinit(&r);
    return st;
}

void ht_tensor_rounding_deinit(ht_tensor_rounding* r)
{
    if (!r) { return; }
    ht_rounding_free(r->rounding);
    r->rounding = NULL;
}

void ht_tensor_rounding_rows(const ht_tensor_rounding* r, ht_round_worker* worker, ht_type type, uint32_t cpu_features, int64_t rows_per_mat, const float* x,
                             int64_t row, int64_t n_rows, void* blocks, ht_round_report* report)
{
    const ht_tensor_statistics* t = r->statistics;
    if (r->rounding) {
        ht_round_rows(r->rounding, worker, type, cpu_features, x, n_rows, blocks, report);
        return;
    }
    const ht_encode_row_fn encode = ht_encode_row_get(type, cpu_features);
    const size_t           bytes  = (size_t)(t->n / ht_type_get((uint32_t)type)->block_elems) * (size_t)ht_type_get((uint32_t)type)->block_bytes;
    for (int64_t k = 0; k < n_rows; k++) {
        const float* importance = r->method == HT_METHOD_RTN ? NULL : t->importance + (row + k) / rows_per_mat * t->n;
        encode(x + k * t->n, (uint8_t*)blocks + (size_t)k * bytes, t->n, importance);
    }
    if (report) { report->n_rows += n_rows; }
}
