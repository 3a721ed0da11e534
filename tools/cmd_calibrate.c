/* halftone calibrate: statistics of a checkpoint's activations over text; and the merging of importance matrices. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/calibration.h"

static void print_text(const char* path, const ht_calib_texts* texts, const ht_collect_report* r, double wall_s)
{
    char size[32];
    printf("%-40s %12s %8s %10s\n", "text", "tokens", "chunks", "held out");
    for (int k = 0; k < texts->n_sources; k++) {
        const ht_calib_source* s = &texts->sources[k];
        printf("%-40s %12" PRId64 " %8" PRId64 " %10" PRId64 "\n", s->name, s->n_tokens, s->n_chunks, s->n_held_out);
    }
    printf("%s: %" PRId64 " tokens fitted, %" PRId64 " held out, %" PRId64 " input columns that are always zero\n", path, r->n_tokens, r->n_tokens_held_out, r->n_zero_columns);
    printf("%.1f s (forward %.1f, backward %.1f), %.0f GFLOP/s, peak memory %s\n", wall_s, r->forward_s, r->backward_s, r->flops / (r->forward_s + r->backward_s) * 1e-9,
           ht_format_bytes(ht_peak_rss_bytes(), size, sizeof size));
}

static ht_status print_json(const char* path, const ht_calib_texts* texts, const ht_collect_report* r, double wall_s, ht_error* err)
{
    cJSON* document = ht_json_document("calibrate");
    ht_json_add_text(document, "file", path);
    cJSON* sources = cJSON_AddArrayToObject(document, "texts");
    for (int k = 0; k < texts->n_sources; k++) {
        const ht_calib_source* s = &texts->sources[k];
        cJSON*                 item = cJSON_CreateObject();
        ht_json_add_text(item, "file", s->name);
        cJSON_AddStringToObject(item, "sha256", s->sha256);
        cJSON_AddNumberToObject(item, "n_tokens", (double)s->n_tokens);
        cJSON_AddNumberToObject(item, "n_chunks", (double)s->n_chunks);
        cJSON_AddNumberToObject(item, "n_held_out", (double)s->n_held_out);
        cJSON_AddItemToArray(sources, item);
    }
    cJSON_AddNumberToObject(document, "ctx", (double)texts->n_ctx);
    cJSON_AddNumberToObject(document, "n_tokens", (double)r->n_tokens);
    cJSON_AddNumberToObject(document, "n_tokens_held_out", (double)r->n_tokens_held_out);
    cJSON_AddNumberToObject(document, "n_zero_columns", (double)r->n_zero_columns);
    cJSON_AddNumberToObject(document, "n_steps_resumed", (double)r->n_layers_resumed);
    ht_json_add_number(document, "nll_mean", r->nll_mean);
    ht_json_add_number(document, "forward_s", r->forward_s);
    ht_json_add_number(document, "backward_s", r->backward_s);
    ht_json_add_number(document, "wall_s", wall_s);
    cJSON_AddNumberToObject(document, "peak_rss_bytes", (double)ht_peak_rss_bytes());
    return ht_json_print(document, err);
}

static ht_status merge(const ht_args* args, const char* out, ht_error* err)
{
    ht_status       st    = HT_STATUS_OK;
    const int       n     = ht_args_n_positional(args);
    ht_statistics** files = calloc((size_t)n + 1, sizeof *files);
    HT_CHECK(files, NOMEM, "importance matrices");
    for (int k = 0; k < n; k++) { HT_TRY(ht_statistics_open(&files[k], ht_args_positional(args, k), ht_args_has(args, "sanitize"), err)); }
    HT_TRY(ht_statistics_merge((const ht_statistics* const*)files, n, out, ht_args_has(args, "force"), err));
    if (!ht_args_json(args)) { printf("%s: %d files merged\n", out, n); }
done:
    for (int k = 0; files && k < n; k++) { ht_statistics_close(files[k]); }
    free(files);
    return st;
}

static bool find_kind(const char* name, ht_collect_kind* out)
{
    static const struct { const char* name; ht_collect_kind kind; } kinds[] = {
        { "guided", HT_COLLECT_GUIDED }, { "probed", HT_COLLECT_PROBED }, { "plain", HT_COLLECT_PLAIN }, { "none", HT_COLLECT_IMPORTANCE },
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (strcmp(name, kinds[k].name) == 0) {
            *out = kinds[k].kind;
            return true;
        }
    }
    return false;
}

static ht_status run_calibrate(const ht_args* args, const ht_ctx* ctx, int* exit_code, ht_error* err)
{
    ht_status         st      = HT_STATUS_OK;
    const double      start_s = ht_time_s();
    const char*       out     = ht_args_text(args, "out", NULL);
    const char*       hessian = ht_args_text(args, "hessian", ht_args_has(args, "fast") ? "probed" : "guided");
    ht_collect_options options = { 0 };
    ht_source*        source  = NULL;
    ht_calib_texts    texts   = { 0 };
    ht_collect_report report  = { 0 };
    (void)exit_code;
    if (!out) { return ht_usage_error(err, "-o OUT is missing"); }
    if (ht_args_has(args, "merge")) { return merge(args, out, err); }
    if (ht_args_n_positional(args) != 1) { return ht_usage_error(err, "one SRC is expected"); }
    if (!ht_args_has(args, "calib")) { return ht_usage_error(err, "--calib TEXT is missing (a file, a folder, - or self)"); }
    HT_TRY(ht_calibration_check(args, err));
    if (!find_kind(hessian, &options.kind)) { return ht_usage_error(err, "--hessian: \"%s\" is not guided, probed, plain or none", hessian); }
    options.force  = ht_args_has(args, "force");
    options.resume = ht_args_has(args, "resume");
    HT_TRY(ht_source_open(&source, ht_args_positional(args, 0), NULL, ctx, err));
    HT_TRY(ht_calibration_run(source, args, out, &options, ctx, &texts, &report, err));
    if (ht_args_json(args)) { HT_TRY(print_json(out, &texts, &report, ht_time_s() - start_s, err)); }
    else { print_text(out, &texts, &report, ht_time_s() - start_s); }
done:
    ht_calib_texts_deinit(&texts);
    ht_source_close(source);
    return st;
}

static const ht_option options[] = {
    HT_CALIBRATION_OPTIONS,
    { "out", 'o', HT_OPTION_TEXT, "OUT", "statistics file to write (llama-quantize reads it as an importance matrix)" },
    { "hessian", 0, HT_OPTION_TEXT, "KIND", "guided (weighted by gradients, the default), probed (sensitivities by trying, no gradients), plain, or none (importance only)" },
    { "fast", 0, HT_OPTION_FLAG, NULL, "short for --hessian probed: no backward pass" },
    { "resume", 0, HT_OPTION_FLAG, NULL, "go on from OUT.work, which an interrupted run left" },
    { "merge", 0, HT_OPTION_FLAG, NULL, "no model: the files named are importance matrices (GGUF or .dat), to be added up" },
    { "sanitize", 0, HT_OPTION_FLAG, NULL, "with --merge: replace entries that hold NaN, Inf or negative sums by ones" },
    { "force", 0, HT_OPTION_FLAG, NULL, "replace an existing file" },
    { NULL, 0, HT_OPTION_FLAG, NULL, NULL },
};

const ht_command ht_command_calibrate = {
    "calibrate", "SRC --calib TEXT... -o STATS.gguf", "gather activation statistics for better files: importance, Hessians, sensitivities",
    "  halftone calibrate ./SmolLM2 --calib prose.txt --calib code/ --calib self -o stats.gguf\n"
    "  halftone calibrate --merge a.imatrix b.gguf -o both.gguf\n"
    "Several kinds of text are better than one: what is fitted to one kind may not hold for others.",
    options, 0, -1, run_calibrate,
};
