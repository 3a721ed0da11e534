#include "quant/mix_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/recipe.h"

/* Measured: the estimate is low by about this for values (docs/measured.md, "does the estimate predict"). */
static const double value_factor = 2.0;

bool ht_mix_is_wanted(const ht_mix_request* r)
{
    bool plus = false;
    for (int k = 0; k < r->n_recipes; k++) { plus |= r->recipes[k] && ht_mix_base_recipe(r->recipes[k]); }
    return plus || r->target_bpw > 0.0 || r->target_bytes > 0 || r->recipe_path;
}

const ht_recipe* ht_mix_base_recipe(const char* name)
{
    char         base[32];
    const size_t n = strlen(name);
    if (n < 2 || n >= sizeof base || name[n - 1] != '+') { return NULL; }
    snprintf(base, sizeof base, "%.*s", (int)(n - 1), name);
    return ht_recipe_find(base);
}

/* Bytes of tensor data with padding, and the size of the file, under the plain recipe. */
static ht_status plain_plan(ht_plan** out, const ht_source* source, const ht_plan_options* options, const char* recipe, ht_error* err)
{
    ht_plan_options plain = *options;
    plain.recipes         = &recipe;
    plain.n_recipes       = 1;
    plain.mixes           = NULL;
    plain.mix_names       = NULL;
    return ht_plan_create(out, source, &plain, err);
}

static double cost_of(const ht_mix_plan* m, const ht_plan_output* output)
{
    double cost = 0.0;
    for (int64_t i = 0; i < m->n_tensors; i++) {
        for (int c = 0; c < m->items[i].n_choices; c++) {
            if (m->items[i].type[c] == output->tensors[i].type) { cost += m->items[i].cost[c]; }
        }
    }
    return cost;
}

/* The header of a mix differs from the plain recipe's by its name and description only: a few dozen bytes. */
enum { HEADER_SLACK = 256 };

/* The items without the types that stock CPUs are slow with, except where a tensor has nothing else. */
static ht_mix_item* without_slow(const ht_mix_item* items, int64_t n)
{
    ht_mix_item* fast = calloc((size_t)n + 1, sizeof *fast);
    for (int64_t i = 0; fast && i < n; i++) {
        fast[i]           = items[i];
        fast[i].n_choices = 0;
        for (int c = 0; c < items[i].n_choices; c++) {
            if (ht_type_is_slow_on_cpu(items[i].type[c])) { continue; }
            const int to        = fast[i].n_choices++;
            fast[i].type[to]    = items[i].type[c];
            fast[i].n_bytes[to] = items[i].n_bytes[c];
            fast[i].cost[to]    = items[i].cost[c];
        }
        if (fast[i].n_choices == 0) { fast[i] = items[i]; }
    }
    return fast;
}

static double sum_costs(const ht_mix_item* items, int64_t n, const int* choice, uint64_t* n_bytes)
{
    double cost = 0.0;
    *n_bytes = 0;
    for (int64_t i = 0; i < n; i++) {
        cost += items[i].cost[choice[i]];
        *n_bytes += items[i].n_bytes[choice[i]];
    }
    return cost;
}

static ht_status choose(ht_mix_plan* m, int k, uint64_t budget, bool prefer_fast, const ht_ctx* ctx, ht_error* err)
{
    ht_status    st     = HT_STATUS_OK;
    uint64_t     n_used = 0, n_unused = 0;
    int*         choice = calloc((size_t)m->n_tensors + 1, sizeof *choice);
    ht_mix_item* fast   = prefer_fast ? without_slow(m->items, m->n_tensors) : NULL;
    m->types[k]         = calloc((size_t)m->n_tensors + 1, sizeof **m->types);
    HT_CHECK(choice && m->types[k] && (fast || !prefer_fast), NOMEM, "mix");
    if (prefer_fast) { /* what would have been */
        HT_TRY(ht_mix_solve(m->items, m->n_tensors, budget, choice, err));
        m->estimate_any[k] = sum_costs(m->items, m->n_tensors, choice, &n_unused);
    }
    const ht_mix_item* items = prefer_fast ? fast : m->items;
    HT_TRY(ht_mix_solve(items, m->n_tensors, budget, choice, err));
    for (int64_t i = 0; i < m->n_tensors; i++) { m->types[k][i] = items[i].type[choice[i]]; }
    m->estimate[k] = sum_costs(items, m->n_tensors, choice, &n_used);
    ht_log_info(&ctx->log, "%s: estimated KL divergence %.5f with importance rounding (the plain recipe: %.5f), %" PRIu64 " of %" PRIu64 " bytes", m->names[k], m->estimate[k],
                m->estimate_base[k], n_used, budget);
    if (prefer_fast) {
        ht_log_info(&ctx->log, "%s: --prefer-fast costs %.5f of that (%.5f with Q5_1 and Q4_1)", m->names[k], m->estimate[k] - m->estimate_any[k], m->estimate_any[k]);
    }
done:
    free(choice);
    free(fast);
    return st;
}

/* Plain Hessians tell nothing of how one tensor's error compares with another's. */
static bool has_sensitivities(const ht_statistics* s)
{
    for (int64_t i = 0; i < ht_statistics_n_entries(s); i++) {
        if (ht_statistics_at(s, i)->has_hessian[HT_HESSIAN_GUIDED]) { return true; }
    }
    return false;
}

/* The table of costs; plain[k]: the plain recipe behind mix k, or NULL. Types that options name stay as they are. */
static ht_status make_items(ht_mix_plan* m, const ht_source* source, const ht_plan_options* options, ht_plan* const* plain, const ht_ctx* ctx, ht_error* err)
{
    ht_status              st    = HT_STATUS_OK;
    ht_sensitivity_options table = { .value_factor = value_factor };
    const ht_type**        also  = calloc((size_t)m->n_recipes + 1, sizeof *also);
    ht_type*               types = calloc((size_t)(m->n_recipes * m->n_tensors) + 1, sizeof *types);
    bool*                  fixed = calloc((size_t)m->n_tensors + 1, sizeof *fixed);
    m->items = calloc((size_t)m->n_tensors + 1, sizeof *m->items);
    HT_CHECK(also && types && fixed && m->items, NOMEM, "mix");
    HT_CHECK(has_sensitivities(options->calibration->statistics), ARG,
             "a mix needs statistics that compare tensors (calibrate --hessian guided, the default, or probed): plain ones do not tell which error matters more");
    for (int k = 0; k < m->n_recipes; k++) {
        if (!plain[k]) { continue; }
        ht_type* own = types + k * m->n_tensors;
        for (int64_t i = 0; i < m->n_tensors; i++) {
            own[i] = plain[k]->outputs[0].tensors[i].type;
            fixed[i] |= plain[k]->outputs[0].details[i].is_named;
        }
        also[table.n_also++] = own;
    }
    table.also     = also;
    table.is_fixed = fixed;
    HT_TRY(ht_gguf_alignment(ht_source_meta(source), &table.alignment, err));
    HT_TRY(ht_sensitivity_table(m->items, source, options->calibration->statistics, &table, ctx, err));
done:
    free(also);
    free(types);
    free(fixed);
    return st;
}

/* Types of a recipe file over those of the plain recipe. */
static ht_status from_file(ht_mix_plan* m, int k, const char* path, const ht_source* source, const ht_plan* plain, ht_error* err)
{
    ht_status       st   = HT_STATUS_OK;
    ht_recipe_file* file = NULL;
    HT_TRY(ht_recipe_file_open(&file, path, err));
    m->types[k] = calloc((size_t)m->n_tensors + 1, sizeof **m->types);
    HT_CHECK(m->types[k], NOMEM, "recipe");
    for (int64_t i = 0; i < m->n_tensors; i++) { m->types[k][i] = plain->outputs[0].tensors[i].type; }
    for (int64_t r = 0; r < ht_recipe_file_n_rows(file); r++) {
        const ht_recipe_file_row* row = ht_recipe_file_at(file, r);
        int64_t                   at  = 0;
        while (at < m->n_tensors && strcmp(ht_source_tensor_at(source, at)->info.name, row->name) != 0) { at++; }
        HT_CHECK(at < m->n_tensors, ARG, "the recipe %s names %s, which the model does not have", path, row->name);
        if (ht_tensor_is_quantizable(&ht_source_tensor_at(source, at)->info)) { m->types[k][at] = row->type->type; }
    }
done:
    ht_recipe_file_close(file);
    return st;
}

static ht_status name_mix(ht_mix_plan* m, int k, const char* name, ht_error* err)
{
    m->names[k] = strdup(name);
    return m->names[k] ? HT_STATUS_OK : ht_fail(err, HT_STATUS_NOMEM, "mix");
}

/* Bytes of tensor data that mix k may take. */
static ht_status budget_of(uint64_t* out, const ht_mix_request* request, const ht_plan* plain, ht_error* err)
{
    const ht_plan_output* output = &plain->outputs[0];
    const uint64_t        header = output->n_header_bytes + HEADER_SLACK;
    uint64_t              n_file = request->target_bytes > 0 ? request->target_bytes : output->n_file_bytes;
    if (request->target_bpw > 0.0) { n_file = header + (uint64_t)(request->target_bpw * (double)plain->n_elems / 8.0); }
    if (n_file <= header) { return ht_fail(err, HT_STATUS_ARG, "%" PRIu64 " bytes are less than the file's header", n_file); }
    *out = n_file - header;
    return HT_STATUS_OK;
}

ht_status ht_mix_plan_init(ht_mix_plan* m, const ht_mix_request* request, const ht_source* source, ht_plan_options* options, const ht_ctx* ctx, ht_error* err)
{
    ht_status  st    = HT_STATUS_OK;
    ht_plan**  plain = NULL;
    const bool is_targeted = request->target_bpw > 0.0 || request->target_bytes > 0;
    bool       needs_costs = false;
    *m = (ht_mix_plan){ .n_recipes = options->n_recipes, .n_tensors = ht_source_n_tensors(source) };
    if (!ht_mix_is_wanted(request)) { return HT_STATUS_OK; }
    plain            = calloc((size_t)m->n_recipes + 1, sizeof *plain);
    m->types         = calloc((size_t)m->n_recipes + 1, sizeof *m->types);
    m->names         = calloc((size_t)m->n_recipes + 1, sizeof *m->names);
    m->estimate      = calloc((size_t)m->n_recipes + 1, sizeof *m->estimate);
    m->estimate_base = calloc((size_t)m->n_recipes + 1, sizeof *m->estimate_base);
    m->estimate_any  = calloc((size_t)m->n_recipes + 1, sizeof *m->estimate_any);
    HT_CHECK(plain && m->types && m->names && m->estimate && m->estimate_base && m->estimate_any, NOMEM, "mix");
    for (int k = 0; k < m->n_recipes; k++) {
        const char*      name = request->recipes[k];
        const ht_recipe* base = ht_mix_base_recipe(name);
        char             label[64];
        if (!base && !is_targeted && !request->recipe_path) { continue; }
        HT_TRY(plain_plan(&plain[k], source, options, base ? ht_recipe_name(base) : name, err));
        snprintf(label, sizeof label, "%s+", plain[k]->outputs[0].type_name);
        HT_TRY(name_mix(m, k, label, err));
        needs_costs |= !request->recipe_path;
    }
    if (needs_costs) { HT_TRY(make_items(m, source, options, plain, ctx, err)); }
    for (int k = 0; k < m->n_recipes; k++) {
        uint64_t budget = 0;
        if (!plain[k]) { continue; }
        if (request->recipe_path) {
            HT_TRY(from_file(m, k, request->recipe_path, source, plain[k], err));
            continue;
        }
        m->estimate_base[k] = cost_of(m, &plain[k]->outputs[0]);
        HT_TRY(budget_of(&budget, request, plain[k], err));
        HT_TRY(choose(m, k, budget, request->prefer_fast, ctx, err));
    }
    options->mixes     = (const ht_type* const*)m->types;
    options->mix_names = (const char* const*)m->names;
done:
    for (int k = 0; plain && k < m->n_recipes; k++) { ht_plan_free(plain[k]); }
    free(plain);
    return st;
}

void ht_mix_plan_deinit(ht_mix_plan* m)
{
    if (!m) { return; }
    for (int k = 0; k < m->n_recipes; k++) {
        if (m->types) { free(m->types[k]); }
        if (m->names) { free(m->names[k]); }
    }
    free(m->types);
    free(m->names);
    free(m->estimate);
    free(m->estimate_base);
    free(m->estimate_any);
    free(m->items);
    *m = (ht_mix_plan){ 0 };
}

ht_status ht_mix_plan_write(const ht_mix_plan* m, const ht_source* source, const char* path, bool force, ht_error* err)
{
    ht_status           st   = HT_STATUS_OK;
    int                 k    = 0;
    int64_t             n    = 0;
    char                notes[128] = "";
    ht_recipe_file_row* rows = calloc((size_t)m->n_tensors + 1, sizeof *rows);
    HT_CHECK(rows, NOMEM, "recipe");
    while (m->types && k < m->n_recipes && !m->types[k]) { k++; }
    HT_CHECK(m->types && k < m->n_recipes, ARG, "--write-recipe: no mix was chosen (TYPE+, --target-bpw or --target-size)");
    for (int64_t i = 0; i < m->n_tensors; i++) {
        const ht_tensor_info* t = &ht_source_tensor_at(source, i)->info;
        if (ht_tensor_is_quantizable(t)) { rows[n++] = (ht_recipe_file_row){ t->name, ht_type_get(m->types[k][i]) }; }
    }
    snprintf(notes, sizeof notes, "{\"estimated_kl\": %.6g, \"estimated_kl_plain_recipe\": %.6g}", m->estimate[k], m->estimate_base[k]);
    HT_TRY(ht_recipe_file_write(path, rows, n, notes, force, err));
done:
    free(rows);
    return st;
}
