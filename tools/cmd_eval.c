/* halftone eval: perplexity of files on a text, and their divergence from a base. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file.h"
#include "runtime/perplexity.h"
#include "tools/models.h"

enum { MAX_TEXT_BYTES = 1 << 30 };

typedef struct evaluation {
    ht_loaded*            loaded;   /* n_models; the base first when there is one */
    int                   n_models;
    bool                  has_base, adds_bos;
    ht_compute            compute;
    ht_perplexity_options options;
    const char*           text_path;
    char*                 text;
    size_t                n_text;
    char                  text_sha256[65], ids_sha256[65];
    int32_t*              ids;
    int64_t               n_ids, n_chunks;
    ht_score*             scores;
} evaluation;

static void evaluation_deinit(evaluation* e)
{
    for (int m = 0; e->loaded && m < e->n_models; m++) { ht_loaded_deinit(&e->loaded[m]); }
    free(e->loaded);
    free(e->text);
    free(e->ids);
    free(e->scores);
}

/* The ids of the text by the first model's tokenizer, and what follows from them. */
static ht_status tokenize_first(evaluation* e, const ht_ctx* ctx, ht_error* err)
{
    ht_status           st        = HT_STATUS_OK;
    const ht_tokenizer* tokenizer = e->loaded[0].tokenizer;
    HT_TRY(ht_tokenizer_encode(tokenizer, e->text, e->n_text, true, false, &e->ids, &e->n_ids, err));
    HT_TRY(ht_sha256_hex(e->ids_sha256, e->ids, (size_t)e->n_ids * sizeof *e->ids, err));
    e->adds_bos    = ht_tokenizer_adds_bos(tokenizer);
    e->options.bos = e->adds_bos ? ht_tokenizer_bos(tokenizer) : -1;
    if (e->adds_bos && e->n_ids > 1 && e->ids[0] == e->options.bos && e->ids[1] == e->options.bos) {
        ht_log_warn(&ctx->log, "the text begins with BOS itself, and the model adds another");
    }
    st = ht_perplexity_n_chunks(e->n_ids, &e->options, &e->n_chunks, err);
    if (st != HT_STATUS_OK) { ht_error_set_file(err, e->text_path); }
done:
    return st;
}

/* Every other model must cut the text into the same tokens: otherwise the numbers could not be compared. */
static ht_status check_same_ids(const evaluation* e, const ht_loaded* loaded, ht_error* err)
{
    ht_status st    = HT_STATUS_OK;
    int32_t*  ids   = NULL;
    int64_t   n_ids = 0;
    HT_TRY(ht_tokenizer_encode(loaded->tokenizer, e->text, e->n_text, true, false, &ids, &n_ids, err));
    const bool same = n_ids == e->n_ids && memcmp(ids, e->ids, (size_t)n_ids * sizeof *ids) == 0;
    HT_CHECK(same, ARG, "%s cuts the text into %" PRId64 " tokens, %s into %" PRId64 ", not the same ones: their scores cannot be compared", loaded->path,
             n_ids, e->loaded[0].path, e->n_ids);
done:
    free(ids);
    return st;
}

static ht_status prepare(evaluation* e, const ht_args* args, ht_error* err)
{
    ht_status   st   = HT_STATUS_OK;
    const char* base = ht_args_text(args, "base", NULL);
    if (!ht_args_has(args, "text")) { return ht_usage_error(err, "--text FILE is missing"); }
    e->text_path        = ht_args_text(args, "text", NULL);
    e->options.n_ctx    = ht_args_int(args, "ctx", 512);
    e->options.n_chunks = ht_args_int(args, "chunks", 0);
    if (e->options.n_ctx < 4 || e->options.n_chunks < 0) { return ht_usage_error(err, "--ctx must be at least 4 and --chunks at least 0"); }
    HT_TRY(ht_compute_parse(&e->compute, args, HT_COMPUTE_EXACT, err));
    HT_TRY(ht_kv_type_parse(&e->options.kv_type, args, err));
    HT_TRY(ht_text_read(&e->text, &e->n_text, e->text_path, MAX_TEXT_BYTES, err));
    HT_TRY(ht_sha256_hex(e->text_sha256, e->text, e->n_text, err));
    e->has_base = base != NULL;
    e->n_models = ht_args_n_positional(args) + e->has_base;
    e->loaded   = calloc((size_t)e->n_models, sizeof *e->loaded);
    e->scores   = calloc((size_t)e->n_models, sizeof *e->scores);
    HT_CHECK(e->loaded && e->scores, NOMEM, "evaluation");
    for (int m = 0; m < e->n_models; m++) { e->loaded[m].path = e->has_base && m == 0 ? base : ht_args_positional(args, m - e->has_base); }
done:
    return st;
}

/* Models [from, to): loaded, scored in lockstep, released. */
static ht_status score_together(evaluation* e, int from, int to, const ht_ctx* ctx, ht_error* err)
{
    ht_status        st     = HT_STATUS_OK;
    const ht_model** models = calloc((size_t)(to - from), sizeof *models);
    const char**     names  = calloc((size_t)(to - from), sizeof *names);
    HT_CHECK(models && names, NOMEM, "evaluation");
    for (int m = from; m < to; m++) {
        HT_TRY(ht_loaded_init(&e->loaded[m], e->loaded[m].path, e->compute, ctx, err));
        HT_TRY(m == 0 ? tokenize_first(e, ctx, err) : check_same_ids(e, &e->loaded[m], err));
        models[m - from] = e->loaded[m].model;
        names[m - from]  = e->loaded[m].path;
    }
    HT_TRY(ht_perplexity_run(models, names, to - from, e->has_base, e->ids, e->n_ids, &e->options, ctx, e->scores + from, err));
done:
    for (int m = from; m < to; m++) { ht_loaded_deinit(&e->loaded[m]); }
    free(models);
    free(names);
    return st;
}

/* With a base all models are needed at once; otherwise only one at a time is in memory. */
static ht_status score_all(evaluation* e, const ht_ctx* ctx, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    if (e->has_base) { return score_together(e, 0, e->n_models, ctx, err); }
    for (int m = 0; m < e->n_models && st == HT_STATUS_OK; m++) { st = score_together(e, m, m + 1, ctx, err); }
    return st;
}

/* --- reports ----------------------------------------------------------------------------------------------------------------- */

static void print_text(const evaluation* e)
{
    printf("text %s: %" PRId64 " tokens, %" PRId64 " chunks of %" PRId64 "%s, compute %s, KV %s\n", e->text_path, e->n_ids, e->n_chunks, e->options.n_ctx,
           e->adds_bos ? ", BOS added" : ", no BOS", ht_compute_name(e->compute), ht_kv_type_name(e->options.kv_type));
    printf("%-40s %-8s %10s %8s %20s", "file", "type", "MiB", "bits/w", "perplexity");
    if (e->has_base) { printf(" %10s %10s %10s %10s %10s %9s %8s", "mean KL", "median", "99%", "99.9%", "max", "top-1", "RMS dp"); }
    printf(" %9s\n", "tokens/s");
    for (int m = 0; m < e->n_models; m++) {
        const ht_loaded* l = &e->loaded[m];
        const ht_score*  s = &e->scores[m];
        printf("%-40s %-8s %10.2f %8.4f %11.4f", l->path, l->type_name, (double)l->n_bytes / 1048576.0, l->bits_per_weight, s->perplexity);
        if (isfinite(s->perplexity_stderr)) { printf(" +- %5.3f", s->perplexity_stderr); }
        else { printf("%9s", ""); }
        if (s->has_kl) {
            printf(" %10.6f %10.6f %10.6f %10.6f %10.6f %8.3f%% %7.3f%%", s->kl_mean, s->kl_median, s->kl_p99, s->kl_p999, s->kl_max, 100.0 * s->same_top1,
                   100.0 * s->rms_dp);
        } else if (e->has_base) {
            printf(" %10s%64s", "(base)", "");
        }
        printf(" %9.1f\n", s->tokens_per_s);
    }
}

static cJSON* json_model(const evaluation* e, int m)
{
    const ht_loaded* l    = &e->loaded[m];
    const ht_score*  s    = &e->scores[m];
    cJSON*           item = cJSON_CreateObject();
    ht_json_add_text(item, "file", l->path);
    cJSON_AddStringToObject(item, "type", l->type_name);
    cJSON_AddNumberToObject(item, "n_bytes", (double)l->n_bytes);
    ht_json_add_number(item, "bits_per_weight", l->bits_per_weight);
    cJSON_AddNumberToObject(item, "n_scored", (double)s->n_scored);
    ht_json_add_number(item, "nll_mean", s->nll_mean);
    ht_json_add_number(item, "perplexity", s->perplexity);
    ht_json_add_number(item, "perplexity_stderr", s->perplexity_stderr);
    if (s->has_kl) {
        ht_json_add_number(item, "kl_mean", s->kl_mean);
        ht_json_add_number(item, "kl_mean_stderr", s->kl_mean_stderr);
        ht_json_add_number(item, "kl_median", s->kl_median);
        ht_json_add_number(item, "kl_p99", s->kl_p99);
        ht_json_add_number(item, "kl_p999", s->kl_p999);
        ht_json_add_number(item, "kl_max", s->kl_max);
        ht_json_add_number(item, "same_top1", s->same_top1);
        ht_json_add_number(item, "rms_dp", s->rms_dp);
    }
    ht_json_add_number(item, "wall_s", s->wall_s);
    ht_json_add_number(item, "tokens_per_s", s->tokens_per_s);
    return item;
}

/* The document up to the results: "ok", or "nonfinite" when a model computed NaN, which is a result too. */
static cJSON* json_head(const evaluation* e, const ht_ctx* ctx, const char* status)
{
    cJSON* document = ht_json_document("eval");
    cJSON_AddStringToObject(document, "status", status);
    cJSON* text     = cJSON_AddObjectToObject(document, "text");
    ht_json_add_text(text, "file", e->text_path);
    cJSON_AddStringToObject(text, "sha256", e->text_sha256);
    cJSON_AddStringToObject(text, "ids_sha256", e->ids_sha256);
    cJSON_AddNumberToObject(text, "n_tokens", (double)e->n_ids);
    cJSON_AddNumberToObject(text, "ctx", (double)e->options.n_ctx);
    cJSON_AddNumberToObject(text, "n_chunks", (double)e->n_chunks);
    cJSON_AddBoolToObject(text, "bos_added", e->adds_bos);
    cJSON_AddStringToObject(document, "compute", ht_compute_name(e->compute));
    cJSON_AddStringToObject(document, "kv", ht_kv_type_name(e->options.kv_type));
    cJSON_AddStringToObject(document, "isa", ht_isa_name(ctx->isa));
    cJSON_AddNumberToObject(document, "threads", ctx->n_threads);
    return document;
}

static ht_status print_json(const evaluation* e, const ht_ctx* ctx, ht_error* err)
{
    cJSON* document = json_head(e, ctx, "ok");
    if (e->has_base) { cJSON_AddItemToObject(document, "base", json_model(e, 0)); }
    cJSON* files = cJSON_AddArrayToObject(document, "files");
    for (int m = e->has_base; m < e->n_models; m++) { cJSON_AddItemToArray(files, json_model(e, m)); }
    cJSON_AddNumberToObject(document, "peak_rss_bytes", (double)ht_peak_rss_bytes());
    return ht_json_print(document, err);
}

/* Which file, which chunk, which token; the exit code stays that of the failure. */
static void print_json_nonfinite(const evaluation* e, const ht_ctx* ctx, const ht_error* reason)
{
    ht_error ignored  = HT_ERROR_INIT;
    cJSON*   document = json_head(e, ctx, "nonfinite");
    ht_json_add_text(document, "file", reason->file);
    ht_json_add_text(document, "reason", reason->message);
    cJSON_AddArrayToObject(document, "files");
    (void)ht_json_print(document, &ignored);
}

static ht_status run(const ht_args* args, const ht_ctx* ctx, int* exit_code, ht_error* err)
{
    ht_status  st = HT_STATUS_OK;
    evaluation e  = { 0 };
    (void)exit_code;
    HT_TRY(prepare(&e, args, err));
    st = score_all(&e, ctx, err);
    if (st == HT_STATUS_NUMERIC && ht_args_json(args) && e.n_chunks > 0) { print_json_nonfinite(&e, ctx, err); }
    if (st != HT_STATUS_OK) { goto done; }
    if (ht_args_json(args)) { HT_TRY(print_json(&e, ctx, err)); }
    else { print_text(&e); }
done:
    evaluation_deinit(&e);
    return st;
}

static const ht_option options[] = {
    { "text", 0, HT_OPTION_TEXT, "FILE", "text to predict: plain or gzip, - for standard input" },
    { "base", 0, HT_OPTION_TEXT, "SRC", "also compare every file's predictions with those of this checkpoint" },
    { "ctx", 0, HT_OPTION_INT, "N", "tokens per chunk (default 512)" },
    { "chunks", 0, HT_OPTION_INT, "N", "only the first N chunks (default: all)" },
    { "kv", 0, HT_OPTION_TEXT, "TYPE", "KV cache: f16 (default) or f32" },
    { "compute", 0, HT_OPTION_TEXT, "HOW", "exact (default): weights decoded, f32 activations; fast: the quantized kernels" },
    { NULL, 0, HT_OPTION_FLAG, NULL, NULL },
};

const ht_command ht_command_eval = {
    "eval", "FILE... --text FILE [--base SRC]", "perplexity of files on a text, and KL divergence from a base",
    "The text is cut into chunks of --ctx tokens; the second half of each is scored (as llama-perplexity does).\n"
    "With --base all files run in lockstep with it: the base is computed once and nothing is stored, but all are in memory together.\n"
    "--compute exact says what the file itself is worth, fast what users of quantized kernels see.",
    options, 1, -1, run,
};
