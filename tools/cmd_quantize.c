/* halftone quantize and halftone convert: one path, two rows. [Calibrate, choose the mix,] plan, then (unless --dry-run) stream. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quant/mix_plan.h"
#include "quant/stream.h"
#include "tools/calibration.h"
#include "tools/file_choice.h"

typedef struct request {
    ht_plan_options   plan;
    ht_stream_options stream;
    ht_source_options source;
    const char**      recipes;
    ht_type_override* overrides;
    char**            patterns; /* owned copies behind overrides[].pattern */
    ht_calibration    calibration;
    ht_statistics*    statistics;
    char*             stats_path; /* of statistics made for this run only: removed at the end */
    ht_mix_request    mix;
    ht_mix_plan       mixes;
} request;

static void request_deinit(request* r)
{
    for (int i = 0; r->patterns && i < r->plan.n_overrides; i++) { free(r->patterns[i]); }
    free(r->patterns);
    free(r->overrides);
    free(r->recipes);
    ht_statistics_close(r->statistics);
    if (r->stats_path) { (void)unlink(r->stats_path); }
    free(r->stats_path);
    ht_mix_plan_deinit(&r->mixes);
}

static ht_status find_type(const ht_type_info** out, const char* option, const char* name, ht_error* err)
{
    char near[128];
    *out = ht_type_find(name);
    if (*out) { return HT_STATUS_OK; }
    return ht_usage_error(err, "%s: unknown type \"%s\" (near: %s; halftone types lists all)", option, name,
                          ht_recipe_suggest(name, near, sizeof near));
}

/* REGEX=TYPE; the pattern may hold '=' itself, so the last one separates. */
static ht_status parse_override(request* r, int i, const char* text, ht_error* err)
{
    const char* equals = strrchr(text, '=');
    if (!equals || equals == text) { return ht_usage_error(err, "--tensor-type: \"%s\" is not of the form REGEX=TYPE", text); }
    r->patterns[i] = strndup(text, (size_t)(equals - text));
    if (!r->patterns[i]) { return ht_fail(err, HT_STATUS_NOMEM, "type overrides"); }
    r->overrides[i].pattern = r->patterns[i];
    return find_type(&r->overrides[i].type, "--tensor-type", equals + 1, err);
}

static ht_status parse_calibration(request* r, const ht_args* args, ht_error* err)
{
    ht_status   st    = HT_STATUS_OK;
    const bool  has   = ht_args_has(args, "stats") || ht_args_has(args, "calib");
    const char* text  = ht_args_text(args, "method", has ? "auto" : "rtn");
    r->calibration    = (ht_calibration){ .damping = ht_args_real(args, "damping", 0.01), .n_sweeps = (int)ht_args_int(args, "sweeps", 3) };
    r->mix            = (ht_mix_request){ .target_bpw = ht_args_real(args, "target-bpw", 0.0), .recipe_path = ht_args_text(args, "recipe", NULL),
                                          .prefer_fast = ht_args_has(args, "prefer-fast"), .recipes = r->plan.recipes, .n_recipes = r->plan.n_recipes };
    if (!ht_method_find(text, &r->calibration.method)) { return ht_usage_error(err, "--method: \"%s\" is not rtn, imatrix, gptq, awq, awq+gptq or auto", text); }
    if (ht_args_has(args, "stats") && ht_args_has(args, "calib")) { return ht_usage_error(err, "--stats and --calib exclude each other"); }
    if (r->calibration.method != HT_METHOD_RTN && !has) { return ht_usage_error(err, "--method %s needs --stats FILE or --calib TEXT", text); }
    if (!(r->calibration.damping >= 0.0 && r->calibration.damping <= 10.0)) { return ht_usage_error(err, "--damping must be between 0 and 10"); }
    if (r->calibration.n_sweeps < 0 || r->calibration.n_sweeps > 20) { return ht_usage_error(err, "--sweeps must be between 0 and 20"); }
    if (r->plan.pure && ht_mix_is_wanted(&r->mix)) { return ht_usage_error(err, "--pure and a mix of one's own exclude each other"); }
    if (ht_args_has(args, "target-size")) { HT_TRY(ht_parse_size(&r->mix.target_bytes, "--target-size", ht_args_text(args, "target-size", ""), err)); }
    if (ht_mix_is_wanted(&r->mix) && !r->mix.recipe_path && !has) {
        return ht_usage_error(err, "a mix of one's own (TYPE+, --target-bpw, --target-size) needs --stats FILE or --calib TEXT");
    }
    if ((r->mix.target_bpw > 0.0) + (r->mix.target_bytes > 0) + (r->mix.recipe_path != NULL) > 1) {
        return ht_usage_error(err, "--target-bpw, --target-size and --recipe exclude each other");
    }
    static const char* const of_statistics[] = { "no-measure", "damping", "sweeps", "sanitize", "strict-coverage", "ignore-mismatch" };
    for (size_t i = 0; i < sizeof of_statistics / sizeof *of_statistics && !has; i++) {
        if (ht_args_has(args, of_statistics[i])) { return ht_usage_error(err, "--%s does nothing without --stats FILE or --calib TEXT", of_statistics[i]); }
    }
    HT_TRY(ht_calibration_check(args, err));
done:
    return st;
}

/* Statistics: from a file, or made now beside the output. */
static ht_status open_statistics(request* r, const ht_args* args, const ht_source* source, const ht_ctx* ctx, ht_error* err)
{
    ht_status         st     = HT_STATUS_OK;
    const char*       path   = ht_args_text(args, "stats", NULL);
    ht_calib_texts    texts  = { 0 };
    ht_collect_report report = { 0 };
    if (!path && !ht_args_has(args, "calib")) { return HT_STATUS_OK; }
    if (!path) {
        const char*  slash = strrchr(r->plan.out, '/');
        const size_t n     = (slash ? (size_t)(slash - r->plan.out) + 1 : 0) + strlen(ht_source_name(source)) + 32;
        const ht_collect_options options = { .kind = r->calibration.method == HT_METHOD_IMATRIX && !ht_mix_is_wanted(&r->mix) ? HT_COLLECT_IMPORTANCE
                                                     : ht_args_has(args, "fast") ? HT_COLLECT_PROBED : HT_COLLECT_GUIDED,
                                             .force = true, .resume = ht_args_has(args, "resume") };
        r->stats_path = malloc(n);
        HT_CHECK(r->stats_path, NOMEM, "options");
        snprintf(r->stats_path, n, "%.*s%s.stats.tmp", slash ? (int)(slash - r->plan.out) + 1 : 0, r->plan.out, ht_source_name(source));
        HT_TRY(ht_calibration_run(source, args, r->stats_path, &options, ctx, &texts, &report, err));
        path = r->stats_path;
    }
    HT_TRY(ht_statistics_open(&r->statistics, path, ht_args_has(args, "sanitize"), err));
    HT_TRY(ht_statistics_check(r->statistics, source, ht_args_has(args, "ignore-mismatch"), ht_args_has(args, "strict-coverage"), ctx, err));
    r->calibration.statistics = r->statistics;
    r->plan.calibration       = &r->calibration;
done:
    ht_calib_texts_deinit(&texts);
    return st;
}

static ht_status parse_request(request* r, const ht_args* args, const char* default_type, ht_error* err)
{
    ht_status   st          = HT_STATUS_OK;
    const int   n_types     = ht_args_count(args, "type");
    const int   n_overrides = ht_args_count(args, "tensor-type");
    const char* embedding   = ht_args_text(args, "token-embedding-type", NULL);
    const char* output      = ht_args_text(args, "output-tensor-type", NULL);

    r->recipes   = calloc((size_t)n_types + 1, sizeof *r->recipes);
    r->overrides = calloc((size_t)n_overrides + 1, sizeof *r->overrides);
    r->patterns  = calloc((size_t)n_overrides + 1, sizeof *r->patterns);
    HT_CHECK(r->recipes && r->overrides && r->patterns, NOMEM, "options");
    r->plan.n_overrides = n_overrides;
    for (int i = 0; i < n_types; i++) { r->recipes[i] = ht_args_text_at(args, "type", i); }
    r->recipes[n_types] = default_type;
    r->plan.recipes     = r->recipes;
    r->plan.n_recipes   = n_types > 0 ? n_types : 1;
    r->plan.overrides   = r->overrides;
    if (n_types == 0 && !default_type) {
        st = ht_usage_error(err, "-t TYPE is missing");
        goto done;
    }
    if (!ht_args_has(args, "out") && !ht_args_has(args, "dry-run")) {
        st = ht_usage_error(err, "-o OUT is missing");
        goto done;
    }
    r->plan.out = ht_args_text(args, "out", "{name}-{type}.gguf");
    for (int i = 0; i < n_overrides; i++) { HT_TRY(parse_override(r, i, ht_args_text_at(args, "tensor-type", i), err)); }
    if (embedding) { HT_TRY(find_type(&r->plan.token_embedding_type, "--token-embedding-type", embedding, err)); }
    if (output) { HT_TRY(find_type(&r->plan.output_type, "--output-tensor-type", output, err)); }
    r->plan.pure               = ht_args_has(args, "pure");
    r->plan.strict             = ht_args_has(args, "strict");
    r->plan.allow_requantize   = ht_args_has(args, "allow-requantize");
    r->stream.force            = ht_args_has(args, "force");
    r->stream.resume           = ht_args_has(args, "resume");
    r->stream.allow_nonfinite  = ht_args_has(args, "allow-nonfinite");
    r->source.allow_nonfinite  = r->stream.allow_nonfinite;
    r->source.pre_tokenizer    = ht_args_text(args, "pre", NULL);
    HT_TRY(parse_calibration(r, args, err));
done:
    return st;
}

/* All type names are checked before the source is opened: a typing mistake costs nothing. */
static ht_status check_recipes(const request* r, ht_error* err)
{
    for (int i = 0; i < r->plan.n_recipes; i++) {
        char near[128];
        const char* name = r->plan.recipes[i];
        if (strcmp(name, "auto") != 0 && !ht_recipe_find(name) && !ht_mix_base_recipe(name)) {
            return ht_usage_error(err, "unknown type \"%s\" (near: %s)", name, ht_recipe_suggest(name, near, sizeof near));
        }
    }
    return HT_STATUS_OK;
}

/* --- reports: text and JSON are two prints of plan and result; result is NULL for a dry run ------------------------------- */

static double rel_rmse(const ht_stream_tensor* m) { return m->sum_sq > 0.0 ? sqrt(m->sum_sq_err / m->sum_sq) : 0.0; }

static void print_tensors(const ht_plan* plan, const ht_plan_output* output)
{
    printf("%-32s %-22s %-8s %-6s %-22s %14s %14s  %s\n", "tensor", "shape", "type", "method", "transform", "bytes", "offset", "source");
    for (int64_t i = 0; i < plan->n_tensors; i++) {
        const ht_tensor_info* t = &output->tensors[i];
        char shape[64], type[32];
        int  used = 0;
        for (int d = 0; d < t->n_dims; d++) { used += snprintf(shape + used, sizeof shape - (size_t)used, d ? " x %" PRId64 : "%" PRId64, t->ne[d]); }
        snprintf(type, sizeof type, "%s%s", ht_type_get(t->type)->name, output->details[i].planned == t->type ? "" : "*");
        printf("%-32s %-22s %-8s %-6s %-22s %14" PRIu64 " %14" PRIu64 "  %s\n", t->name, shape, type, output->details[i].method,
               output->details[i].source->transform, t->n_bytes, output->n_header_bytes + t->offset_bytes, output->details[i].source->origin);
    }
}

/* By kind: from which type to which, at which row length, how many tensors. (A dry run marks every one of them.) */
static void print_fallbacks(const ht_plan* plan, const ht_plan_output* output)
{
    if (output->n_fallback == 0) { return; }
    printf("  %" PRId64 " of %" PRId64 " tensors have rows that do not fill the blocks of their type: %.4f bits/weight planned, %.4f got\n",
           output->n_fallback, plan->n_tensors, output->planned_bits_per_weight, output->bits_per_weight);
    for (int64_t i = 0; i < plan->n_tensors; i++) {
        const ht_type planned = output->details[i].planned, type = output->tensors[i].type;
        const int64_t n_cols  = output->tensors[i].ne[0];
        int64_t       n = 0, n_before = 0;
        if (planned == type) { continue; }
        for (int64_t j = 0; j < plan->n_tensors; j++) {
            const bool same = output->details[j].planned == planned && output->tensors[j].type == type && output->tensors[j].ne[0] == n_cols;
            n += same;
            n_before += same && j < i;
        }
        if (n_before > 0) { continue; }
        printf("    %-6s -> %-6s rows of %-8" PRId64 " %" PRId64 " tensors, %s%s\n", ht_type_get(planned)->name, ht_type_get(type)->name, n_cols, n, output->tensors[i].name,
               n > 1 ? " the first" : "");
    }
}

/* What was done to how many tensors, and what it is estimated to cost. */
static void print_methods(const ht_plan* plan, const ht_stream_result* result)
{
    for (int k = 0; k < plan->n_outputs; k++) {
        const ht_stream_tensor* tensors = result->tensors + k * plan->n_tensors;
        double                  cost = 0.0, held_out = 0.0;
        int64_t                 n_guarded = 0, n_rows = 0, n_importance = 0;
        printf("  %s:", plan->outputs[k].type_name);
        for (int64_t i = 0; i < plan->n_tensors; i++) { /* each method once, at its first tensor */
            int64_t n = 0;
            bool    is_first = true;
            for (int64_t j = 0; j < plan->n_tensors; j++) {
                const bool same = strcmp(tensors[i].method, tensors[j].method) == 0;
                is_first &= !(same && j < i);
                n += same;
            }
            if (is_first) { printf(" %s x %" PRId64 "%s", tensors[i].method, n, ","); }
            cost += tensors[i].cost;
            held_out += tensors[i].cost_held_out;
            n_rows += tensors[i].rounding.n_rows;
            n_guarded += tensors[i].rounding.n_guarded;
            n_importance += tensors[i].rounding.n_importance;
        }
        if (held_out > 0.0) { printf(" estimated KL divergence %.5f fitted, %.5f held out;", cost, held_out); }
        printf(" of %" PRId64 " rows %" PRId64 " tried again, %" PRId64 " left at importance rounding\n", n_rows, n_guarded, n_importance);
    }
}

static void print_choice(const char* type_name, const ht_file_choice* c)
{
    if (!c->measured) { return; }
    printf("  %s: measured on %" PRId64 " held-out tokens: KL divergence %.5f +- %.5f, with importance rounding %.5f +- %.5f%s\n", type_name, c->n_tokens, c->kl, c->kl_stderr,
           c->kl_importance, c->kl_importance_stderr, c->is_importance ? "; importance rounding is closer: that is the file" : "");
}

static void print_text(const ht_plan* plan, const ht_stream_result* result, const ht_file_choice* choices, double wall_s, int n_threads)
{
    char size[32];
    for (int k = 0; k < plan->n_outputs; k++) {
        const ht_plan_output* output = &plan->outputs[k];
        if (!result) { print_tensors(plan, output); }
        printf("%s  %s  %" PRIu64 " bytes (%s)  %.4f bits/weight\n", output->path, output->type_name, output->n_file_bytes,
               ht_format_bytes(output->n_file_bytes, size, sizeof size), output->bits_per_weight);
        print_fallbacks(plan, output);
        int64_t n_zeroed = 0;
        for (int64_t i = 0; result && i < plan->n_tensors; i++) { n_zeroed += result->tensors[k * plan->n_tensors + i].n_zeroed_rows; }
        if (n_zeroed > 0) { printf("  %" PRId64 " rows are too small for the type's scales and became zeros\n", n_zeroed); }
    }
    if (result && plan->calibration && plan->calibration->statistics) { print_methods(plan, result); }
    for (int k = 0; k < plan->n_outputs; k++) { print_choice(plan->outputs[k].type_name, &choices[k]); }
    if (result) {
        printf("%.2f s, %d threads, peak memory %s\n", wall_s, n_threads, ht_format_bytes(ht_peak_rss_bytes(), size, sizeof size));
    } else {
        printf("dry run: nothing written; needs about %s of memory with %d threads\n",
               ht_format_bytes(ht_stream_memory_bytes(plan, n_threads), size, sizeof size), n_threads);
    }
}

static cJSON* json_tensor(const ht_plan_output* output, int64_t i, const ht_stream_tensor* m)
{
    const ht_tensor_info* t   = &output->tensors[i];
    cJSON*                row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "name", t->name);
    cJSON* shape = cJSON_AddArrayToObject(row, "shape");
    for (int d = 0; d < t->n_dims; d++) { cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)t->ne[d])); }
    cJSON_AddStringToObject(row, "type", ht_type_get(t->type)->name);
    cJSON_AddStringToObject(row, "method", output->details[i].method);
    cJSON_AddNumberToObject(row, "n_bytes", (double)t->n_bytes);
    cJSON_AddNumberToObject(row, "offset_bytes", (double)(output->n_header_bytes + t->offset_bytes));
    if (output->details[i].planned == t->type) { cJSON_AddNullToObject(row, "fallback_from"); }
    else { cJSON_AddStringToObject(row, "fallback_from", ht_type_get(output->details[i].planned)->name); }
    ht_json_add_text(row, "source", output->details[i].source->origin);
    cJSON_AddStringToObject(row, "transform", output->details[i].source->transform);
    if (m) {
        ht_json_add_number(row, "rel_rmse", rel_rmse(m));
        ht_json_add_number(row, "max_err", m->max_err);
        cJSON_AddNumberToObject(row, "n_zeroed_rows", (double)m->n_zeroed_rows);
        cJSON_AddStringToObject(row, "rounding", m->method);
        ht_json_add_number(row, "cost", m->cost);
        ht_json_add_number(row, "cost_held_out", m->cost_held_out);
        ht_json_add_number(row, "held_out_gain", m->held_out_gain);
        cJSON_AddNumberToObject(row, "n_guarded_rows", (double)m->rounding.n_guarded);
    }
    return row;
}

static ht_status print_json(const char* command, const ht_plan* plan, const ht_stream_result* result, const ht_file_choice* choices, double wall_s, int n_threads, ht_error* err)
{
    cJSON* document = ht_json_document(command);
    ht_json_add_text(document, "source", ht_source_path(plan->source));
    cJSON_AddBoolToObject(document, "dry_run", !result);
    cJSON* outputs = cJSON_AddArrayToObject(document, "outputs");
    for (int k = 0; k < plan->n_outputs; k++) {
        const ht_plan_output* output = &plan->outputs[k];
        cJSON*                item   = cJSON_CreateObject();
        ht_json_add_text(item, "file", output->path);
        cJSON_AddStringToObject(item, "type", output->type_name);
        cJSON_AddNumberToObject(item, "n_bytes", (double)output->n_file_bytes);
        ht_json_add_number(item, "bits_per_weight", output->bits_per_weight);
        ht_json_add_number(item, "planned_bits_per_weight", output->planned_bits_per_weight);
        cJSON_AddNumberToObject(item, "n_fallback", (double)output->n_fallback);
        if (choices[k].measured) {
            cJSON* measured = cJSON_AddObjectToObject(item, "held_out");
            cJSON_AddNumberToObject(measured, "n_tokens", (double)choices[k].n_tokens);
            ht_json_add_number(measured, "kl_mean", choices[k].kl);
            ht_json_add_number(measured, "kl_mean_stderr", choices[k].kl_stderr);
            ht_json_add_number(measured, "kl_mean_importance", choices[k].kl_importance);
            ht_json_add_number(measured, "kl_mean_importance_stderr", choices[k].kl_importance_stderr);
            cJSON_AddBoolToObject(measured, "importance_chosen", choices[k].is_importance);
        }
        cJSON* tensors = cJSON_AddArrayToObject(item, "tensors");
        for (int64_t i = 0; i < plan->n_tensors; i++) {
            cJSON_AddItemToArray(tensors, json_tensor(output, i, result ? &result->tensors[k * plan->n_tensors + i] : NULL));
        }
        cJSON_AddItemToArray(outputs, item);
    }
    cJSON_AddNumberToObject(document, "threads", n_threads);
    ht_json_add_number(document, "wall_s", wall_s);
    cJSON_AddNumberToObject(document, "peak_rss_bytes", (double)ht_peak_rss_bytes());
    cJSON_AddNumberToObject(document, "memory_estimate_bytes", (double)ht_stream_memory_bytes(plan, n_threads));
    return ht_json_print(document, err);
}

static ht_status run(const char* command, const char* default_type, const ht_args* args, const ht_ctx* ctx, ht_error* err)
{
    ht_status        st       = HT_STATUS_OK;
    const double     start_s  = ht_time_s();
    const bool       dry_run  = ht_args_has(args, "dry-run");
    ht_file_choice*  choices  = NULL;
    request          r        = { 0 };
    ht_source*       source   = NULL;
    ht_plan*         plan     = NULL;
    ht_stream_result result   = { 0 };

    HT_TRY(parse_request(&r, args, default_type, err));
    HT_TRY(check_recipes(&r, err));
    HT_TRY(ht_source_open(&source, ht_args_positional(args, 0), &r.source, ctx, err));
    HT_TRY(open_statistics(&r, args, source, ctx, err));
    HT_TRY(ht_mix_plan_init(&r.mixes, &r.mix, source, &r.plan, ctx, err));
    if (ht_args_has(args, "write-recipe")) { HT_TRY(ht_mix_plan_write(&r.mixes, source, ht_args_text(args, "write-recipe", NULL), ht_args_has(args, "force"), err)); }
    HT_TRY(ht_plan_create(&plan, source, &r.plan, err));
    HT_TRY(ht_plan_fold(plan, ctx, err));
    choices = calloc((size_t)plan->n_outputs + 1, sizeof *choices);
    HT_CHECK(choices, NOMEM, "results");
    if (!dry_run) { HT_TRY(ht_stream_run(plan, &r.stream, ctx, &result, err)); }
    if (!dry_run && r.calibration.method == HT_METHOD_AUTO && !ht_args_has(args, "no-measure")) {
        HT_TRY(ht_choose_files(choices, plan, &r.plan, &r.stream, &result, ctx, err));
    }
    const double                  wall_s = ht_time_s() - start_s;
    const ht_stream_result* const filled = dry_run ? NULL : &result;
    if (ht_args_json(args)) { HT_TRY(print_json(command, plan, filled, choices, wall_s, ctx->n_threads, err)); }
    else { print_text(plan, filled, choices, wall_s, ctx->n_threads); }
done:
    free(choices);
    ht_stream_result_deinit(&result);
    ht_plan_free(plan);
    ht_source_close(source);
    request_deinit(&r);
    return st;
}

static ht_status run_quantize(const ht_args* args, const ht_ctx* ctx, int* exit_code, ht_error* err)
{
    (void)exit_code;
    return run("quantize", NULL, args, ctx, err);
}

static ht_status run_convert(const ht_args* args, const ht_ctx* ctx, int* exit_code, ht_error* err)
{
    (void)exit_code;
    return run("convert", "F16", args, ctx, err);
}

static const ht_option convert_options[] = {
    { "type", 't', HT_OPTION_TEXT, "TYPE", "Q4_K_M, Q8_0, F16 …, or auto to keep the source's types; may be repeated" },
    { "out", 'o', HT_OPTION_TEXT, "OUT", "file to write; {name} and {type} are replaced" },
    { "tensor-type", 0, HT_OPTION_TEXT, "REGEX=TYPE", "type of the tensors whose name the pattern finds; the first match wins" },
    { "token-embedding-type", 0, HT_OPTION_TEXT, "TYPE", "type of the token embedding" },
    { "output-tensor-type", 0, HT_OPTION_TEXT, "TYPE", "type of the output matrix" },
    { "pure", 0, HT_OPTION_FLAG, NULL, "the plain type for every tensor, no mixture" },
    { "strict", 0, HT_OPTION_FLAG, NULL, "refuse when rows do not fill the blocks of their type, instead of another type" },
    { "dry-run", 0, HT_OPTION_FLAG, NULL, "print the plan (every tensor, exact sizes) and write nothing" },
    { "force", 0, HT_OPTION_FLAG, NULL, "replace existing files" },
    { "allow-requantize", 0, HT_OPTION_FLAG, NULL, "accept a source that is quantized already" },
    { "allow-nonfinite", 0, HT_OPTION_FLAG, NULL, "write NaN and Inf instead of refusing them" },
    { "pre", 0, HT_OPTION_TEXT, "NAME", "name of the pre-tokenizer, when the source's pattern is unknown" },
    { NULL, 0, HT_OPTION_FLAG, NULL, NULL },
};

static const ht_option quantize_options[] = {
    { "type", 't', HT_OPTION_TEXT, "TYPE", "Q4_K_M, Q8_0 …; Q4_K_M+ for a mix of one's own of Q4_K_M's size; auto to keep the source's types; may be repeated" },
    { "out", 'o', HT_OPTION_TEXT, "OUT", "file to write; {name} and {type} are replaced" },
    { "tensor-type", 0, HT_OPTION_TEXT, "REGEX=TYPE", "type of the tensors whose name the pattern finds; the first match wins" },
    { "token-embedding-type", 0, HT_OPTION_TEXT, "TYPE", "type of the token embedding" },
    { "output-tensor-type", 0, HT_OPTION_TEXT, "TYPE", "type of the output matrix" },
    { "pure", 0, HT_OPTION_FLAG, NULL, "the plain type for every tensor, no mixture" },
    { "strict", 0, HT_OPTION_FLAG, NULL, "refuse when rows do not fill the blocks of their type, instead of another type" },
    { "dry-run", 0, HT_OPTION_FLAG, NULL, "print the plan (every tensor, exact sizes) and write nothing" },
    { "force", 0, HT_OPTION_FLAG, NULL, "replace existing files" },
    { "allow-requantize", 0, HT_OPTION_FLAG, NULL, "accept a source that is quantized already" },
    { "allow-nonfinite", 0, HT_OPTION_FLAG, NULL, "write NaN and Inf instead of refusing them" },
    { "pre", 0, HT_OPTION_TEXT, "NAME", "name of the pre-tokenizer, when the source's pattern is unknown" },
    { "stats", 0, HT_OPTION_TEXT, "FILE", "statistics of calibrate, or an importance matrix of llama-imatrix" },
    { "method", 0, HT_OPTION_TEXT, "NAME", "rtn, imatrix, gptq, awq, awq+gptq, or auto (per tensor what holds on held-out text; the default with statistics)" },
    HT_CALIBRATION_OPTIONS,
    { "no-measure", 0, HT_OPTION_FLAG, NULL, "with auto: do not measure the written files on the held-out text" },
    { "damping", 0, HT_OPTION_REAL, "X", "of gptq: share of the mean that is added to the Hessian's diagonal (0.01)" },
    { "sweeps", 0, HT_OPTION_INT, "N", "of gptq: rounds of descent (3)" },
    { "target-bpw", 0, HT_OPTION_REAL, "X", "choose every tensor's type for this many bits per weight" },
    { "target-size", 0, HT_OPTION_TEXT, "SIZE", "choose every tensor's type for a file of this size (100MB, 95MiB)" },
    { "recipe", 0, HT_OPTION_TEXT, "FILE", "take every tensor's type from a file that --write-recipe made" },
    { "write-recipe", 0, HT_OPTION_TEXT, "FILE", "write the chosen types down" },
    { "prefer-fast", 0, HT_OPTION_FLAG, NULL, "leave types out that stock CPU kernels are slow with (Q5_1, Q4_1); says what that costs" },
    { "sanitize", 0, HT_OPTION_FLAG, NULL, "replace statistics that hold NaN, Inf or negative sums by ones" },
    { "strict-coverage", 0, HT_OPTION_FLAG, NULL, "refuse statistics that have nothing on a matrix, or an expert that no token reached" },
    { "ignore-mismatch", 0, HT_OPTION_FLAG, NULL, "leave out statistics that do not fit the model" },
    { "fast", 0, HT_OPTION_FLAG, NULL, "with --calib: sensitivities by trying, no backward pass" },
    { "resume", 0, HT_OPTION_FLAG, NULL, "go on from an interrupted run: its calibration, and its rounding against Hessians (OUT.part, OUT.journal)" },
    { NULL, 0, HT_OPTION_FLAG, NULL, NULL },
};

const ht_command ht_command_quantize = {
    "quantize", "SRC -t TYPE... -o OUT", "write quantized GGUF files from a checkpoint (HF folder, .safetensors or .gguf)",
    "Several -t share one read of the source:\n"
    "  halftone quantize ./SmolLM2 -t Q8_0 -t Q4_K_M -t Q4_0 -o 'out/{name}-{type}.gguf'\n"
    "With statistics, better files of the same size:\n"
    "  halftone calibrate ./SmolLM2 --calib prose.txt --calib code/ -o stats.gguf\n"
    "  halftone quantize ./SmolLM2 --stats stats.gguf -t Q4_K_M -t Q4_K_M+ -o 'out/{name}-{type}.gguf'\n"
    "Output appears under its final name only when it is complete.",
    quantize_options, 1, 1, run_quantize,
};

const ht_command ht_command_convert = {
    "convert", "SRC -o OUT.gguf [-t F16]", "write a checkpoint as GGUF, F16 unless another type is asked for",
    "  halftone convert ./SmolLM2 -o SmolLM2-BF16.gguf -t auto", convert_options, 1, 1, run_convert,
};
