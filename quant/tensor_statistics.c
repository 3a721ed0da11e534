#include "quant/tensor_statistics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static ht_status read_hessian(float** out, const ht_statistics* statistics, const ht_statistics_entry* entry, ht_hessian_kind kind, ht_error* err)
{
    if (!entry->has_hessian[kind]) { return HT_STATUS_OK; }
    *out = malloc((size_t)entry->n_cols * (size_t)entry->n_cols * sizeof **out);
    if (!*out) { return ht_fail(err, HT_STATUS_NOMEM, "a Hessian of %" PRId64 " columns", entry->n_cols); }
    return ht_statistics_read_hessian(statistics, entry, kind, *out, err);
}

static ht_status read_roles(ht_tensor_statistics* t, const ht_statistics* statistics, ht_error* err)
{
    static const ht_hessian_kind fitted[2] = { HT_HESSIAN_GUIDED, HT_HESSIAN_GUIDED_1 };
    static const ht_hessian_kind held[2]   = { HT_HESSIAN_HELD_OUT, HT_HESSIAN_HELD_OUT_1 };
    ht_status st = HT_STATUS_OK;
    t->is_guided = t->entry->has_hessian[HT_HESSIAN_GUIDED] || t->entry->has_hessian[HT_HESSIAN_GUIDED_1];
    for (int role = 0; role < 2; role++) {
        const ht_hessian_kind kind = t->is_guided ? fitted[role] : HT_HESSIAN_PLAIN;
        if (!t->entry->has_hessian[kind] || (role == 1 && !t->is_guided)) { continue; }
        ht_tensor_role* r = &t->roles[t->n_roles++];
        r->row_weight     = t->is_guided ? t->entry->row_weight[role] : NULL;
        HT_TRY(read_hessian(&r->hessian, statistics, t->entry, kind, err));
        HT_TRY(read_hessian(&r->held_out, statistics, t->entry, held[role], err));
    }
done:
    return st;
}

ht_status ht_tensor_statistics_init(ht_tensor_statistics* out, const ht_statistics* statistics, const ht_tensor_info* tensor, bool with_hessians,
                                    ht_error* err)
{
    ht_status            st = HT_STATUS_OK;
    ht_tensor_statistics t  = { .entry = ht_statistics_find(statistics, tensor->name), .n = tensor->ne[0], .n_mats = tensor->ne[2] * tensor->ne[3] };
    if (t.entry && t.entry->n_mats == t.n_mats && t.entry->n_cols == t.n) {
        t.importance = malloc((size_t)(t.n * t.n_mats) * sizeof *t.importance);
        HT_CHECK(t.importance, NOMEM, "importance");
        for (int64_t m = 0; m < t.n_mats; m++) { (void)ht_statistics_importance(t.entry, m, t.importance + m * t.n); }
        if (with_hessians && t.n_mats == 1) { HT_TRY(read_roles(&t, statistics, err)); }
    }
    if (t.n_roles > 0) { t.hessian = t.roles[0].hessian; }
    if (t.n_roles == 2) {
        const float share = 1.0f / (float)ht_tensor_n_rows(tensor);
        t.hessian = malloc((size_t)t.n * (size_t)t.n * sizeof *t.hessian);
        HT_CHECK(t.hessian, NOMEM, "a Hessian of %" PRId64 " columns", t.n);
        for (int64_t i = 0; i < t.n * t.n; i++) { t.hessian[i] = t.roles[0].hessian[i] + t.roles[1].hessian[i] * share; }
    }
    *out = t;
    t    = (ht_tensor_statistics){ 0 };
done:
    ht_tensor_statistics_deinit(&t);
    return st;
}

void ht_tensor_statistics_deinit(ht_tensor_statistics* t)
{
    if (!t) { return; }
    if (t->n_roles != 1) { free(t->hessian); }
    for (int role = 0; role < t->n_roles; role++) {
        free(t->roles[role].hessian);
        free(t->roles[role].held_out);
    }
    free(t->importance);
    free(t->folded_weight);
    memset(t, 0, sizeof *t);
}

double ht_tensor_cost(const ht_tensor_statistics* t, bool held_out, ht_round_worker* worker, uint32_t cpu_features, const float* x, const float* back,
                      int64_t row, int64_t n_rows)
{
    enum { ROWS = 16 };
    double cost = 0.0;
    for (int role = 0; role < t->n_roles; role++) {
        const ht_tensor_role* r       = &t->roles[role];
        const float*          hessian = held_out && r->held_out ? r->held_out : r->hessian;
        for (int64_t i = 0; i < n_rows; i += ROWS) {
            const int64_t n = n_rows - i < ROWS ? n_rows - i : ROWS;
            double        errors[ROWS];
            ht_row_errors(hessian, t->n, worker, cpu_features, x + i * t->n, back + i * t->n, n, errors);
            for (int64_t k = 0; k < n; k++) { cost += 0.5 * errors[k] * (r->row_weight ? (double)r->row_weight[row + i + k] : 1.0); }
        }
    }
    return cost;
}
