#include "quant/stream.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "formats/decode.h"
#include "quant/encode.h"
#include "quant/journal.h"

/*
 * Values per work item, rounded to whole rows: 1 MiB of f32. Small enough that a dozen threads share a small model evenly and that the
 * item stays in the L2 cache between reading and encoding, large enough that a pread costs nothing.
 */
enum { ITEM_ELEMS = 1 << 18, WINDOW_ITEMS = 1024 };

/* Rows per item of a tensor that is rounded against a Hessian: four tiles of 16, so that both threads have something to do in short matrices. */
enum { CALIBRATED_ROWS = 64 };

typedef struct work_item {
    int64_t tensor, row, n_rows;
} work_item;

/* What one thread owns. */
typedef struct scratch {
    float* x;       /* the rows, decoded               */
    float* back;    /* the blocks, decoded again       */
    void*  blocks;  /* the rows, encoded (or raw)      */
    float* folded;  /* the rows times what an output folds into them */
    ht_round_worker* worker; /* for calibrated tensors */
} scratch;

typedef struct stream {
    const ht_plan*           plan;
    const ht_stream_options* options;
    const ht_ctx*            ctx;
    uint32_t                 features;
    ht_out_file**            files;     /* n_outputs                                    */
    work_item                items[WINDOW_ITEMS];
    ht_stream_tensor*        partial;   /* WINDOW_ITEMS * n_outputs                     */
    int64_t                  failed_item;  /* lowest index in the window that failed    */
    ht_error                 failure;
    /* The calibrated tensor that the window belongs to (-1: none; a window has one such tensor or none), made ready. */
    int64_t                  calibrated;
    ht_tensor_statistics*    statistics;   /* n_outputs: folding changes them           */
    ht_tensor_rounding*      roundings;    /* n_outputs                                 */
    ht_journal*              journal;      /* of runs that take long: what is finished; NULL else */
} stream;

/* Whether some output rounds the tensor with statistics. */
static bool is_calibrated(const ht_plan* plan, int64_t tensor)
{
    for (int k = 0; k < plan->n_outputs; k++) {
        ht_method method;
        if (ht_method_find(plan->outputs[k].details[tensor].method, &method) && method != HT_METHOD_RTN) { return true; }
    }
    return false;
}

static int64_t rows_per_item(const ht_plan* plan, int64_t tensor)
{
    const ht_tensor_info* info = &plan->outputs[0].tensors[tensor];
    if (is_calibrated(plan, tensor)) { return CALIBRATED_ROWS; }
    const int64_t n = ITEM_ELEMS / info->ne[0];
    return n > 0 ? n : 1;
}

static int64_t item_elems_max(const ht_plan* plan)
{
    int64_t n = ITEM_ELEMS;
    for (int64_t i = 0; i < plan->n_tensors; i++) {
        const int64_t ne0 = plan->outputs[0].tensors[i].ne[0] * (is_calibrated(plan, i) ? CALIBRATED_ROWS : 1);
        if (ne0 > n) { n = ne0; }
    }
    return n;
}

uint64_t ht_stream_memory_bytes(const ht_plan* plan, int n_threads)
{
    uint64_t n_hessian = 0; /* four f32 matrices of the widest calibrated tensor, the factor's f64 one, and 16 rows of ten kinds per thread */
    for (int64_t i = 0; i < plan->n_tensors; i++) {
        const uint64_t n = (uint64_t)plan->outputs[0].tensors[i].ne[0], need = n * n * 24 + (uint64_t)n_threads * n * 16 * 10 * sizeof(float);
        if (is_calibrated(plan, i) && need > n_hessian) { n_hessian = need; }
    }
    /* x, back, blocks of up to 8 bytes per value, and about as much inside the source for undecoded rows */
    return n_hessian + (uint64_t)n_threads * (uint64_t)item_elems_max(plan) * (2 * sizeof(float) + 2 * 8);
}

/* --- one item, one output ---------------------------------------------------------------------------------------------- */

/* A value that the float type cannot hold would become Inf silently; say so instead. */
static ht_status check_range(const float* x, int64_t n_rows, int64_t n_cols, int64_t row, ht_type type, ht_error* err)
{
    const float limit = 65520.0f; /* rounds to Inf in binary16 */
    if (type != HT_TYPE_f16) { return HT_STATUS_OK; }
    for (int64_t i = 0; i < n_rows * n_cols; i++) {
        if (fabsf(x[i]) >= limit && isfinite(x[i])) {
            return ht_fail(err, HT_STATUS_NUMERIC, "row %" PRId64 ", column %" PRId64 ": %g does not fit F16 (largest 65504); use BF16 or F32",
                           row + i / n_cols, i % n_cols, (double)x[i]);
        }
    }
    return HT_STATUS_OK;
}

static void measure(ht_stream_tensor* m, const float* restrict x, const float* restrict back, int64_t n_rows, int64_t n_cols)
{
    enum { LANES = 16 };
    for (int64_t r = 0; r < n_rows; r++) {
        const float* a = x + r * n_cols;
        const float* b = back + r * n_cols;
        double       sum_err[LANES] = { 0 }, sum[LANES] = { 0 };
        float        max_err = 0.0f, max_a = 0.0f, max_b = 0.0f;
        for (int64_t i = 0; i < n_cols; i += LANES) {
            const int n = n_cols - i < LANES ? (int)(n_cols - i) : LANES;
            for (int k = 0; k < n; k++) {
                const float e = b[i + k] - a[i + k];
                sum_err[k] += (double)e * (double)e;
                sum[k] += (double)a[i + k] * (double)a[i + k];
                max_err = fabsf(e) > max_err ? fabsf(e) : max_err;
                max_a   = fabsf(a[i + k]) > max_a ? fabsf(a[i + k]) : max_a;
                max_b   = fabsf(b[i + k]) > max_b ? fabsf(b[i + k]) : max_b;
            }
        }
        for (int k = 0; k < LANES; k++) {
            m->sum_sq_err += sum_err[k];
            m->sum_sq += sum[k];
        }
        if ((double)max_err > m->max_err) { m->max_err = (double)max_err; }
        m->n_zeroed_rows += max_a > 0.0f && max_b == 0.0f;
    }
}

static ht_status write_item(stream* s, const work_item* item, int k, const scratch* own, size_t row_bytes, ht_stream_tensor* m, ht_error* err)
{
    const ht_plan_output* output  = &s->plan->outputs[k];
    const ht_tensor_info* info    = &output->tensors[item->tensor];
    const size_t          n_bytes = row_bytes * (size_t)item->n_rows;
    const uint64_t        offset  = output->n_header_bytes + info->offset_bytes + (uint64_t)item->row * row_bytes;
    m->crc32 = (uint32_t)crc32_z(0, own->blocks, n_bytes);
    return ht_out_file_write_at(s->files[k], offset, own->blocks, n_bytes, err);
}

static ht_status encode_item(stream* s, const work_item* item, int k, scratch* own, ht_stream_tensor* m, ht_error* err)
{
    ht_status             st     = HT_STATUS_OK;
    const ht_plan_output* output = &s->plan->outputs[k];
    const ht_tensor_info* info   = &output->tensors[item->tensor];
    const int64_t         n_cols = info->ne[0];
    const ht_fold*        fold   = output->folding.folds ? &output->folding.folds[item->tensor] : NULL;
    const float*          x      = own->x;
    size_t                row_bytes = 0;

    HT_TRY(ht_row_bytes(ht_type_get(info->type), n_cols, &row_bytes, err));
    if (strcmp(output->details[item->tensor].method, "copy") == 0) {
        HT_TRY(ht_source_read_rows_raw(s->plan->source, output->details[item->tensor].source, item->row, item->n_rows, own->blocks, err));
        ht_decode_row_get(info->type)(own->blocks, own->back, item->n_rows * n_cols);
    } else {
        const ht_encode_row_fn    encode = ht_encode_row_get(info->type, s->features);
        const ht_tensor_rounding* r      = item->tensor == s->calibrated && ht_type_get(info->type)->is_quantized ? &s->roundings[k] : NULL;
        if (fold && (fold->columns || fold->rows)) {
            memcpy(own->folded, own->x, (size_t)(item->n_rows * n_cols) * sizeof *own->folded);
            ht_fold_rows(fold, own->folded, item->row, item->n_rows, n_cols);
            x = own->folded;
        }
        if (!s->options->allow_nonfinite) { HT_TRY(check_range(x, item->n_rows, n_cols, item->row, info->type, err)); }
        if (r) { ht_tensor_rounding_rows(r, own->worker, info->type, s->features, info->ne[1], x, item->row, item->n_rows, own->blocks, &m->rounding); }
        else { encode(x, own->blocks, item->n_rows * n_cols, NULL); } /* rows are whole blocks, and no importance tells them apart */
        ht_decode_row_get(info->type)(own->blocks, own->back, item->n_rows * n_cols);
        if (r && s->statistics[k].n_roles > 0) {
            m->cost          = ht_tensor_cost(&s->statistics[k], false, own->worker, s->features, x, own->back, item->row, item->n_rows);
            m->cost_held_out = ht_tensor_cost(&s->statistics[k], true, own->worker, s->features, x, own->back, item->row, item->n_rows);
        }
    }
    measure(m, x, own->back, item->n_rows, n_cols);
    HT_TRY(write_item(s, item, k, own, row_bytes, m, err));
done:
    return st;
}

static ht_status run_item(stream* s, int64_t index, scratch* own, ht_error* err)
{
    ht_status               st     = HT_STATUS_OK;
    const work_item*        item   = &s->items[index];
    const ht_source_tensor* tensor = s->plan->outputs[0].details[item->tensor].source;
    HT_CHECK(!ht_cancelled(s->ctx), CANCELLED, s->journal ? "interrupted; --resume goes on from here" : "interrupted; nothing was written");
    HT_TRY(ht_source_read_rows_f32(s->plan->source, tensor, item->row, item->n_rows, own->x, err));
    for (int k = 0; k < s->plan->n_outputs; k++) {
        ht_stream_tensor* m = &s->partial[index * s->plan->n_outputs + k];
        *m = (ht_stream_tensor){ 0 };
        HT_TRY(encode_item(s, item, k, own, m, err));
    }
done:
    if (st != HT_STATUS_OK && st != HT_STATUS_CANCELLED) { ht_error_set_tensor(err, tensor->info.name); }
    return st;
}

/* --- windows of items ------------------------------------------------------------------------------------------------------ */

/* Keep the failure with the lowest index, so that the message does not depend on the number of threads. */
static void note_failure(stream* s, int64_t index, const ht_error* err)
{
#pragma omp critical(ht_stream_failure)
    if (index < s->failed_item) {
        s->failed_item = index;
        s->failure     = *err;
    }
}

static bool has_failed_before(stream* s, int64_t index)
{
    int64_t failed;
#pragma omp atomic read
    failed = s->failed_item;
    return failed < index;
}

static void run_window(stream* s, int64_t n_items)
{
    const size_t n_elems = (size_t)item_elems_max(s->plan);
#pragma omp parallel num_threads(s->ctx->n_threads)
    {
        scratch own = { malloc(n_elems * sizeof(float)), malloc(n_elems * sizeof(float)), malloc(n_elems * 8), malloc(n_elems * sizeof(float)), NULL };
        if (s->calibrated >= 0) { own.worker = ht_round_worker_create(s->plan->outputs[0].tensors[s->calibrated].ne[0]); }
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < n_items; i++) {
            ht_error err = HT_ERROR_INIT;
            if (has_failed_before(s, i)) { continue; }
            if (!own.x || !own.back || !own.blocks || !own.folded || (s->calibrated >= 0 && !own.worker)) { ht_fail(&err, HT_STATUS_NOMEM, "buffers of %zu values", n_elems); }
            else { (void)run_item(s, i, &own, &err); }
            if (err.status != HT_STATUS_OK) { note_failure(s, i, &err); }
        }
        free(own.x);
        free(own.back);
        free(own.blocks);
        free(own.folded);
        ht_round_worker_free(own.worker);
    }
}

/* Add the parts of a window, in row order, to the tensors they belong to. */
static void fold_window(const stream* s, int64_t n_items, ht_stream_result* result)
{
    for (int64_t i = 0; i < n_items; i++) {
        const work_item* item = &s->items[i];
        for (int k = 0; k < s->plan->n_outputs; k++) {
            const ht_tensor_info*   info  = &s->plan->outputs[k].tensors[item->tensor];
            const ht_stream_tensor* part  = &s->partial[i * s->plan->n_outputs + k];
            ht_stream_tensor*       whole = &result->tensors[k * s->plan->n_tensors + item->tensor];
            const int64_t           n_part_bytes = (int64_t)(info->n_bytes / (uint64_t)ht_tensor_n_rows(info)) * item->n_rows;
            whole->crc32 = item->row == 0 ? part->crc32 : (uint32_t)crc32_combine64(whole->crc32, part->crc32, n_part_bytes);
            whole->sum_sq_err += part->sum_sq_err;
            whole->sum_sq += part->sum_sq;
            whole->max_err = fmax(whole->max_err, part->max_err);
            whole->n_zeroed_rows += part->n_zeroed_rows;
            whole->cost += part->cost;
            whole->cost_held_out += part->cost_held_out;
            whole->rounding.n_rows += part->rounding.n_rows;
            whole->rounding.n_guarded += part->rounding.n_guarded;
            whole->rounding.n_importance += part->rounding.n_importance;
            whole->rounding.error += part->rounding.error;
            whole->rounding.error_importance += part->rounding.error_importance;
        }
    }
}

static void release_calibrated(stream* s)
{
    for (int k = 0; k < s->plan->n_outputs; k++) {
        ht_tensor_rounding_deinit(&s->roundings[k]);
        ht_tensor_statistics_deinit(&s->statistics[k]);
    }
    s->calibrated = -1;
}

/* Statistics and Hessian factors of a calibrated tensor, for every output that quantizes it; and what will be done, for the report. */
static ht_status prepare_calibrated(stream* s, int64_t tensor, ht_stream_result* result, ht_error* err)
{
    ht_status               st          = HT_STATUS_OK;
    const ht_plan*          plan        = s->plan;
    const ht_calibration*   calibration = plan->calibration;
    const ht_source_tensor* source      = plan->outputs[0].details[tensor].source;
    if (s->calibrated == tensor) { return st; }
    release_calibrated(s);
    s->calibrated = tensor;
    for (int k = 0; k < plan->n_outputs; k++) {
        ht_stream_tensor* m    = &result->tensors[k * plan->n_tensors + tensor];
        const ht_type     type = plan->outputs[k].tensors[tensor].type;
        if (!ht_type_get(type)->is_quantized) { continue; }
        HT_TRY(ht_tensor_statistics_init(&s->statistics[k], calibration->statistics, &source->info, ht_method_needs_hessians(calibration->method), err));
        const ht_fold* fold = plan->outputs[k].folding.folds ? &plan->outputs[k].folding.folds[tensor] : NULL;
        if (fold) {
            HT_TRY(ht_fold_statistics(fold, &s->statistics[k], ht_tensor_n_rows(&source->info), err));
        }
        HT_TRY(ht_tensor_rounding_init(&s->roundings[k], calibration, &s->statistics[k], fold, plan->source, source, type, s->ctx, err));
        const ht_tensor_rounding* r = &s->roundings[k];
        const ht_round_candidate* c = &r->candidates[r->chosen];
        snprintf(m->method, sizeof m->method, "%s", r->n_candidates > 0 ? c->name : ht_method_name(r->method));
        m->held_out_gain = r->n_candidates > 0 && c->cost > 0.0 ? r->candidates[0].cost / c->cost : 1.0;
        if (r->notes.n_dead > 0) {
            ht_log_warn(&s->ctx->log, "%s: %" PRId64 " of %" PRId64 " input columns are zero in all calibration text", source->info.name, r->notes.n_dead, source->info.ne[0]);
        }
        if (r->notes.damping_used > 10.0 * calibration->damping) {
            ht_log_warn(&s->ctx->log, "%s: the Hessian is not positive definite; damping raised to %g", source->info.name, r->notes.damping_used);
        }
    }
done:
    if (st != HT_STATUS_OK) { ht_error_set_tensor(err, source->info.name); }
    return st;
}

/* Fill the window with the next items after (*tensor, *row); returns how many. A calibrated tensor has windows of its own. */
static int64_t next_items(stream* s, int64_t* tensor, int64_t* row)
{
    int64_t n = 0;
    while (n < WINDOW_ITEMS && *tensor < s->plan->n_tensors) {
        const int64_t last = n > 0 ? s->items[n - 1].tensor : *tensor;
        if (last != *tensor && (is_calibrated(s->plan, last) || is_calibrated(s->plan, *tensor))) { break; }
        const ht_tensor_info* info   = &s->plan->outputs[0].tensors[*tensor];
        const int64_t         n_left = ht_tensor_n_rows(info) - *row, n_most = rows_per_item(s->plan, *tensor);
        const int64_t         n_rows = n_most < n_left ? n_most : n_left;
        s->items[n++] = (work_item){ *tensor, *row, n_rows };
        *row += n_rows;
        if (n_rows == n_left) {
            *row = 0;
            ++*tensor;
        }
    }
    return n;
}

/* Whether the tensor's bytes lie in all .part files as an earlier run left them; their report then counts as this run's. */
static bool is_finished(const stream* s, int64_t tensor, ht_stream_result* result)
{
    enum { PIECE = 1 << 20 };
    bool     ok    = s->journal && is_calibrated(s->plan, tensor);
    uint8_t* piece = ok ? malloc(PIECE) : NULL;
    for (int k = 0; ok && k < s->plan->n_outputs; k++) {
        const ht_plan_output*   output = &s->plan->outputs[k];
        const ht_tensor_info*   info   = &output->tensors[tensor];
        const ht_stream_tensor* done   = ht_journal_find(s->journal, k, tensor);
        uint32_t                crc    = 0;
        ok = piece && done;
        for (uint64_t at = 0; ok && at < info->n_bytes; at += PIECE) {
            const size_t n = info->n_bytes - at < PIECE ? (size_t)(info->n_bytes - at) : PIECE;
            ok  = ht_out_file_read_at(s->files[k], output->n_header_bytes + info->offset_bytes + at, piece, n);
            crc = ok ? (uint32_t)crc32_z(crc, piece, n) : 0;
        }
        ok = ok && crc == done->crc32;
    }
    for (int k = 0; ok && k < s->plan->n_outputs; k++) { result->tensors[k * s->plan->n_tensors + tensor] = *ht_journal_find(s->journal, k, tensor); }
    free(piece);
    return ok;
}

static ht_status stream_rows(stream* s, ht_stream_result* result, ht_error* err)
{
    ht_status st     = HT_STATUS_OK;
    int64_t   tensor = 0, row = 0, n_resumed = 0;
    uint64_t  done   = 0;
    for (;;) {
        while (s->options->resume && row == 0 && tensor < s->plan->n_tensors && is_finished(s, tensor, result)) {
            done += (uint64_t)ht_tensor_n_elems(&s->plan->outputs[0].tensors[tensor++]);
            n_resumed++;
        }
        const int64_t n = next_items(s, &tensor, &row);
        if (n == 0) { break; }
        const int64_t first = s->items[0].tensor;
        s->failed_item = INT64_MAX;
        if (is_calibrated(s->plan, first)) { HT_TRY(prepare_calibrated(s, first, result, err)); }
        else { release_calibrated(s); }
        run_window(s, n);
        if (s->failed_item != INT64_MAX) {
            if (err) { *err = s->failure; }
            st = s->failure.status;
            goto done;
        }
        fold_window(s, n, result);
        for (int k = 0; s->journal && row == 0 && is_calibrated(s->plan, first) && k < s->plan->n_outputs; k++) {
            HT_TRY(ht_journal_add(s->journal, k, first, &result->tensors[k * s->plan->n_tensors + first], err));
        }
        for (int64_t i = 0; i < n; i++) { done += (uint64_t)(s->items[i].n_rows * s->plan->outputs[0].tensors[s->items[i].tensor].ne[0]); }
        ht_progress(s->ctx, "quantizing", done, (uint64_t)s->plan->n_elems);
    }
    if (n_resumed > 0) { ht_log_info(&s->ctx->log, "%" PRId64 " tensors were finished by an earlier run", n_resumed); }
done:
    return st;
}

static ht_status write_header(stream* s, int k, const ht_stream_result* result, ht_error* err)
{
    ht_status st     = HT_STATUS_OK;
    void*     header = NULL;
    uint32_t* crcs   = calloc((size_t)s->plan->n_tensors, sizeof *crcs);
    HT_CHECK(crcs, NOMEM, "checksums");
    for (int64_t i = 0; i < s->plan->n_tensors; i++) { crcs[i] = result->tensors[k * s->plan->n_tensors + i].crc32; }
    HT_TRY(ht_plan_header(s->plan, k, crcs, &header, err));
    HT_TRY(ht_out_file_write_at(s->files[k], 0, header, s->plan->outputs[k].n_header_bytes, err));
done:
    free(crcs);
    free(header);
    return st;
}

/* The padding after each tensor, and so the exact size: one zero byte run per gap. */
static ht_status write_padding(stream* s, int k, ht_error* err)
{
    static const char     zeros[4096];
    const ht_plan_output* output = &s->plan->outputs[k];
    for (int64_t i = 0; i < s->plan->n_tensors; i++) {
        uint64_t       at  = output->n_header_bytes + output->tensors[i].offset_bytes + output->tensors[i].n_bytes;
        const uint64_t end = i + 1 < s->plan->n_tensors ? output->n_header_bytes + output->tensors[i + 1].offset_bytes : output->n_file_bytes;
        while (at < end) {
            const size_t    n  = end - at < sizeof zeros ? (size_t)(end - at) : sizeof zeros;
            const ht_status st = ht_out_file_write_at(s->files[k], at, zeros, n, err);
            if (st != HT_STATUS_OK) { return st; }
            at += n;
        }
    }
    return HT_STATUS_OK;
}

ht_status ht_stream_run(const ht_plan* plan, const ht_stream_options* options, const ht_ctx* ctx, ht_stream_result* result, ht_error* err)
{
    ht_status        st       = HT_STATUS_OK;
    uint64_t         n_needed = 0;
    const bool       is_long  = plan->calibration && plan->calibration->statistics && ht_method_needs_hessians(plan->calibration->method);
    ht_stream_result filled   = { plan->n_outputs, plan->n_tensors, NULL };
    stream*          s        = calloc(1, sizeof *s);
    HT_CHECK(s, NOMEM, "stream");
    s->plan        = plan;
    s->options     = options;
    s->ctx         = ctx;
    s->features    = ht_isa_features(ctx->isa);
    s->files       = calloc((size_t)plan->n_outputs, sizeof *s->files);
    s->calibrated  = -1;
    s->roundings   = calloc((size_t)plan->n_outputs, sizeof *s->roundings);
    s->statistics  = calloc((size_t)plan->n_outputs, sizeof *s->statistics);
    s->partial     = calloc((size_t)WINDOW_ITEMS * (size_t)plan->n_outputs, sizeof *s->partial);
    filled.tensors = calloc((size_t)plan->n_outputs * (size_t)plan->n_tensors, sizeof *filled.tensors);
    HT_CHECK(s->files && s->partial && s->roundings && s->statistics && filled.tensors, NOMEM, "stream");
    for (int k = 0; k < plan->n_outputs; k++) {
        n_needed += plan->outputs[k].n_file_bytes; /* together they must fit */
        if (is_long) { HT_TRY(ht_out_file_create_part(&s->files[k], plan->outputs[k].path, n_needed, options->force, options->resume, err)); }
        else { HT_TRY(ht_out_file_create(&s->files[k], plan->outputs[k].path, n_needed, options->force, err)); }
    }
    if (is_long) { HT_TRY(ht_journal_open(&s->journal, plan, options->resume, ctx, err)); }
    for (int64_t i = 0; i < plan->n_outputs * plan->n_tensors; i++) {
        const ht_plan_output* output = &plan->outputs[i / plan->n_tensors];
        snprintf(filled.tensors[i].method, sizeof filled.tensors[i].method, "%s", output->details[i % plan->n_tensors].method);
    }
    HT_TRY(stream_rows(s, &filled, err));
    for (int k = 0; k < plan->n_outputs; k++) {
        HT_TRY(write_header(s, k, &filled, err));
        HT_TRY(write_padding(s, k, err));
    }
    HT_CHECK(!ht_cancelled(ctx), CANCELLED, s->journal ? "interrupted; --resume goes on from here" : "interrupted; nothing was written");
    for (int k = 0; k < plan->n_outputs; k++) {
        ht_out_file* file = s->files[k];
        s->files[k]       = NULL; /* commit frees it either way */
        HT_TRY(ht_out_file_commit(file, err));
    }
    *result        = filled;
    filled.tensors = NULL;
done:
    if (s) {
        const bool is_kept = s->journal ? st == HT_STATUS_CANCELLED : is_long && options->resume; /* for --resume, as after a kill; not ours after all */
        for (int k = 0; s->files && k < plan->n_outputs; k++) {
            if (is_kept) { ht_out_file_keep(s->files[k]); }
            else { ht_out_file_discard(s->files[k]); }
        }
        ht_journal_close(s->journal, !is_kept);
        if (s->roundings && s->statistics) { release_calibrated(s); }
        free(s->roundings);
        free(s->statistics);
        free(s->files);
        free(s->partial);
    }
    free(s);
    free(filled.tensors);
    return st;
}

void ht_stream_result_deinit(ht_stream_result* result)
{
    if (!result) { return; }
    free(result->tensors);
    result->tensors = NULL;
}
