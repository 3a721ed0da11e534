#include "quant/sensitivity.h"

#include <stdlib.h>
#include <string.h>

#include "formats/decode.h"
#include "quant/encode.h"
#include "quant/recipe.h"

/*
 * Candidates. Rows that fill super-blocks: all K types, and IQ4_XS; others: blocks of 32. (On rows of 256 the legacy types are dominated: Q4_0 and
 * Q5_0 by Q4_K and Q5_K of the same size.)
 */
static const ht_type wide[]   = { HT_TYPE_q2_k, HT_TYPE_q3_k, HT_TYPE_iq4_xs, HT_TYPE_q4_k, HT_TYPE_q5_k, HT_TYPE_q6_k, HT_TYPE_q8_0 };
static const ht_type narrow[] = { HT_TYPE_iq4_nl, HT_TYPE_q4_1, HT_TYPE_q5_0, HT_TYPE_q5_1, HT_TYPE_q8_0 };
enum { N_WIDE = sizeof wide / sizeof *wide, N_NARROW = sizeof narrow / sizeof *narrow };

/* Rows looked at: all, unless one pass over them would take more than about 2^36 products. */
static int64_t rows_to_look_at(int64_t n_rows, int64_t n_cols)
{
    const int64_t affordable = ((int64_t)1 << 36) / (n_cols * n_cols), n_max = affordable > 1024 ? affordable : 1024;
    return n_rows < n_max ? n_rows : n_max;
}

bool ht_type_is_slow_on_cpu(ht_type type) { return type == HT_TYPE_q5_1 || type == HT_TYPE_q4_1; }

enum { ITEM_ROWS = 64 };

typedef struct table_row {
    const ht_source*            source;
    const ht_source_tensor*     tensor;
    const ht_tensor_statistics* statistics;
    ht_mix_item*                item;
    int64_t                     n_rows, n_looked_at, n_items;
    double*                     costs; /* (n_items, choices) */
} table_row;

/* Rows i * ITEM_ROWS … of those looked at; they lie evenly in the tensor. */
static ht_status cost_of_rows(const table_row* t, int64_t i, ht_round_worker* worker, float* x, float* back, void* blocks, const ht_ctx* ctx, ht_error* err)
{
    ht_status      st       = HT_STATUS_OK;
    const int64_t  n        = t->statistics->n, from = i * ITEM_ROWS;
    const int64_t  to       = from + ITEM_ROWS < t->n_looked_at ? from + ITEM_ROWS : t->n_looked_at;
    const uint32_t features = ht_isa_features(ctx->isa);
    const int64_t  step     = t->n_rows / t->n_looked_at;
    float*         importance = back + ITEM_ROWS * n;
    HT_CHECK(!ht_cancelled(ctx), CANCELLED, "interrupted");
    for (int64_t k = 0; k < n; k++) { importance[k] = t->statistics->hessian[k * n + k] > 0.0f ? t->statistics->hessian[k * n + k] : 0.0f; }
    if (step == 1) { HT_TRY(ht_source_read_rows_f32(t->source, t->tensor, from, to - from, x, err)); }
    for (int64_t r = from; step > 1 && r < to; r++) { HT_TRY(ht_source_read_rows_f32(t->source, t->tensor, r * step, 1, x + (r - from) * n, err)); }
    for (int c = 0; c < t->item->n_choices; c++) {
        const ht_type type = t->item->type[c];
        double        cost = 0.0;
        for (int64_t r = 0; r < to - from; r++) {
            ht_encode_row_get(type, features)(x + r * n, blocks, n, importance);
            ht_decode_row_get(type)(blocks, back + r * n, n);
        }
        if (step == 1) { cost = ht_tensor_cost(t->statistics, false, worker, features, x, back, from, to - from); }
        for (int64_t r = from; step > 1 && r < to; r++) {
            cost += ht_tensor_cost(t->statistics, false, worker, features, x + (r - from) * n, back + (r - from) * n, r * step, 1);
        }
        t->costs[i * HT_MIX_CHOICES_MAX + c] = cost * (double)t->n_rows / (double)t->n_looked_at;
    }
done:
    return st;
}

static ht_status fill_costs(table_row* t, const ht_ctx* ctx, ht_error* err)
{
    ht_status     st      = HT_STATUS_OK;
    const int64_t n       = t->statistics->n;
    int64_t       failed  = INT64_MAX;
    ht_error      failure = HT_ERROR_INIT;
    t->n_rows      = ht_tensor_n_rows(&t->tensor->info);
    t->n_looked_at = rows_to_look_at(t->n_rows, n);
    t->n_items     = (t->n_looked_at + ITEM_ROWS - 1) / ITEM_ROWS;
    t->costs       = calloc((size_t)t->n_items * HT_MIX_CHOICES_MAX, sizeof *t->costs);
    HT_CHECK(t->costs, NOMEM, "costs");
#pragma omp parallel num_threads(ctx->n_threads)
    {
        ht_round_worker* worker = ht_round_worker_create(n);
        float*           x      = malloc((size_t)(ITEM_ROWS * n) * sizeof *x);
        float*           back   = malloc((size_t)(ITEM_ROWS * n + n) * sizeof *back);
        void*            blocks = malloc((size_t)n * sizeof(float));
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < t->n_items; i++) {
            ht_error e = HT_ERROR_INIT;
            if (!worker || !x || !back || !blocks) { ht_fail(&e, HT_STATUS_NOMEM, "rows of %lld values", (long long)n); }
            else { (void)cost_of_rows(t, i, worker, x, back, blocks, ctx, &e); }
            if (e.status == HT_STATUS_OK) { continue; }
#pragma omp critical(ht_sensitivity_failure)
            if (i < failed) {
                failed  = i;
                failure = e;
            }
        }
        ht_round_worker_free(worker);
        free(x);
        free(back);
        free(blocks);
    }
    if (failed != INT64_MAX) {
        if (err) { *err = failure; }
        st = failure.status;
        goto done;
    }
    for (int64_t i = 0; i < t->n_items; i++) {
        for (int c = 0; c < t->item->n_choices; c++) { t->item->cost[c] += t->costs[i * HT_MIX_CHOICES_MAX + c]; }
    }
done:
    free(t->costs);
    return st;
}

/* Types of the same size compete too: the cheaper one wins. */
static ht_status add_choice(ht_mix_item* item, const ht_tensor_info* info, ht_type type, uint64_t alignment, ht_error* err)
{
    ht_tensor_info t = *info;
    for (int c = 0; c < item->n_choices; c++) {
        if (item->type[c] == type) { return HT_STATUS_OK; }
    }
    if (info->ne[0] % ht_type_get((uint32_t)type)->block_elems != 0 || item->n_choices == HT_MIX_CHOICES_MAX) { return HT_STATUS_OK; }
    t.type             = type;
    const ht_status st = ht_tensor_info_size(&t, err);
    item->type[item->n_choices]      = type;
    item->n_bytes[item->n_choices++] = (t.n_bytes + alignment - 1) / alignment * alignment;
    return st;
}

/* The choices of tensor i, without their costs. */
static ht_status list_choices(ht_mix_item* item, const ht_tensor_info* info, int64_t i, bool has_costs, const ht_sensitivity_options* options, ht_error* err)
{
    ht_status  st      = HT_STATUS_OK;
    const bool is_wide = info->ne[0] % 256 == 0, is_free = has_costs && !(options->is_fixed && options->is_fixed[i]);
    HT_TRY(add_choice(item, info, options->also[0][i], options->alignment, err));
    for (int k = 1; has_costs && k < options->n_also; k++) { HT_TRY(add_choice(item, info, options->also[k][i], options->alignment, err)); }
    for (int k = 0; is_free && k < (is_wide ? N_WIDE : N_NARROW); k++) { HT_TRY(add_choice(item, info, is_wide ? wide[k] : narrow[k], options->alignment, err)); }
done:
    return st;
}

ht_status ht_sensitivity_table(ht_mix_item* items, const ht_source* source, const ht_statistics* statistics, const ht_sensitivity_options* options,
                               const ht_ctx* ctx, ht_error* err)
{
    ht_status            st   = HT_STATUS_OK;
    const int64_t        n    = ht_source_n_tensors(source);
    ht_tensor_statistics own  = { 0 };
    uint64_t             done = 0, total = 0;
    for (int64_t i = 0; i < n; i++) { total += (uint64_t)ht_tensor_n_elems(&ht_source_tensor_at(source, i)->info); }
    for (int64_t i = 0; i < n; i++) {
        const ht_source_tensor* tensor = ht_source_tensor_at(source, i);
        ht_mix_item*            item   = &items[i];
        *item = (ht_mix_item){ .name = tensor->info.name };
        ht_tensor_statistics_deinit(&own);
        if (ht_tensor_is_quantizable(&tensor->info)) { HT_TRY(ht_tensor_statistics_init(&own, statistics, &tensor->info, true, err)); }
        HT_TRY(list_choices(item, &tensor->info, i, own.n_roles > 0, options, err));
        if (own.n_roles > 0) {
            table_row row = { .source = source, .tensor = tensor, .statistics = &own, .item = item };
            HT_TRY(fill_costs(&row, ctx, err));
            const size_t name_len = strlen(item->name), suffix_len = strlen(".attn_v.weight");
            const bool   is_value = name_len > suffix_len && strcmp(item->name + name_len - suffix_len, ".attn_v.weight") == 0;
            for (int c = 0; is_value && c < item->n_choices; c++) { item->cost[c] *= options->value_factor; }
        }
        done += (uint64_t)ht_tensor_n_elems(&tensor->info);
        ht_progress(ctx, "estimating", done, total);
    }
done:
    ht_tensor_statistics_deinit(&own);
    return st;
}
