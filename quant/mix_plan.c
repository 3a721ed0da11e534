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

static ht_status choose(ht_mix_plan* m, int k, uint64_t budget, const ht_ctx* ctx, ht_error* err)
{
    ht_status st     = HT_STATUS_OK;
    uint64_t  n_used = 0;
    int*      choice = calloc((size_t)m->n_tensors + 1, sizeof *choice);
    m->types[k]      = calloc((size_t)m->n_tensors + 1, sizeof **m->types);
    HT_CHECK(choice && m->types[k], NOMEM, "mix");
    HT_TRY(ht_mix_solve(m->items, m->n_tensors, budget, choice, err));
    for (int64_t i = 0; i < m->n_tensors; i++) {
        m->types[k][i] = m->items[i].type[choice[i]];
        m->estimate[k] += m->items[i].cost[choice[i]];
        n_used += m->items[i].n_bytes[choice[i]];
    }
    ht_log_info(&ctx->log, "%s: estimated KL divergence %.5f with importance rounding (the plain recipe: %.5f), %" PRIu64 " of %" PRIu64 " bytes", m->names[k], m->estimate[k],
                m->estimate_base[k], n_used, budget);
done:
    free(choice);
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

static ht_status make_items(ht_mix_plan* m, const ht_mix_request* request, const ht_source* source, const ht_plan_options* options, const ht_plan* plain, const ht_ctx* ctx,
                            ht_error* err)
{
    ht_status st        = HT_STATUS_OK;
    uint64_t  alignment = 0;
    ht_type*  fixed     = calloc((size_t)m->n_tensors + 1, sizeof *fixed);
    const ht_sensitivity_options sensitivity = { request->prefer_fast, value_factor };
    m->items = calloc((size_t)m->n_tensors + 1, sizeof *m->items);
    HT_CHECK(fixed && m->items, NOMEM, "mix");
    HT_CHECK(has_sensitivities(options->calibration->statistics), ARG,
             "a mix needs statistics with gradients (calibrate --hessian guided, the default): without them errors of different tensors cannot be compared");
    for (int64_t i = 0; i < m->n_tensors; i++) { fixed[i] = plain->outputs[0].tensors[i].type; }
    HT_TRY(ht_gguf_alignment(ht_source_meta(source), &alignment, err));
    HT_TRY(ht_sensitivity_table(m->items, source, options->calibration->statistics, fixed, alignment, &sensitivity, ctx, err));
done:
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

ht_status ht_mix_plan_init(ht_mix_plan* m, const ht_mix_request* request, const ht_source* source, ht_plan_options* options, const ht_ctx* ctx, ht_error* err)
{
    ht_status st    = HT_STATUS_OK;
    ht_plan*  plain = NULL;
    *m = (ht_mix_plan){ .n_recipes = options->n_recipes, .n_tensors = ht_source_n_tensors(source) };
    if (!ht_mix_is_wanted(request)) { return HT_STATUS_OK; }
    m->types         = calloc((size_t)m->n_recipes + 1, sizeof *m->types);
    m->names         = calloc((size_t)m->n_recipes + 1, sizeof *m->names);
    m->estimate      = calloc((size_t)m->n_recipes + 1, sizeof *m->estimate);
    m->estimate_base = calloc((size_t)m->n_recipes + 1, sizeof *m->estimate_base);
    HT_CHECK(m->types && m->names && m->estimate && m->estimate_base, NOMEM, "mix");
    for (int k = 0; k < m->n_recipes; k++) {
        const char*      name = request->recipes[k];
        const ht_recipe* base = ht_mix_base_recipe(name);
        const bool       targeted = request->target_bpw > 0.0 || request->target_bytes > 0;
        char             label[64];
        if (!base && !targeted && !request->recipe_path) { continue; }
        ht_plan_free(plain);
        plain = NULL;
        HT_TRY(plain_plan(&plain, source, options, base ? ht_recipe_name(base) : name, err));
        snprintf(label, sizeof label, "%s+", plain->outputs[0].type_name);
        HT_TRY(name_mix(m, k, label, err));
        if (request->recipe_path) {
            HT_TRY(from_file(m, k, request->recipe_path, source, plain, err));
            continue;
        }
        if (!m->items) { HT_TRY(make_items(m, request, source, options, plain, ctx, err)); }
        uint64_t n_file = plain->outputs[0].n_file_bytes;
        if (request->target_bytes > 0) { n_file = request->target_bytes; }
        if (request->target_bpw > 0.0) { n_file = plain->outputs[0].n_header_bytes + HEADER_SLACK + (uint64_t)(request->target_bpw * (double)plain->n_elems / 8.0); }
        HT_CHECK(n_file > plain->outputs[0].n_header_bytes + HEADER_SLACK, ARG, "%" PRIu64 " bytes are less than the file's header", n_file);
        m->estimate_base[k] = cost_of(m, &plain->outputs[0]);
        HT_TRY(choose(m, k, n_file - plain->outputs[0].n_header_bytes - HEADER_SLACK, ctx, err));
    }
    options->mixes     = (const ht_type* const*)m->types;
    options->mix_names = (const char* const*)m->names;
done:
    ht_plan_free(plain);
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
