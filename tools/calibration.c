#include "tools/calibration.h"

#include <stdlib.h>
#include <string.h>

#include "calib/self_text.h"

/* Chunks that the model writes itself when --chunks does not tell: 16 384 tokens at the usual 512. */
enum { SELF_CHUNKS = 32 };

ht_status ht_calibration_check(const ht_args* args, ht_error* err)
{
    static const char* const of_calib[] = { "ctx", "chunks", "held-out", "memory", "parse-special", "fast" };
    for (size_t i = 0; i < sizeof of_calib / sizeof *of_calib && !ht_args_has(args, "calib"); i++) {
        if (ht_args_has(args, of_calib[i])) { return ht_usage_error(err, "--%s does nothing without --calib TEXT", of_calib[i]); }
    }
    if (ht_args_int(args, "ctx", 512) < 16) { return ht_usage_error(err, "--ctx must be at least 16"); }
    if (ht_args_int(args, "chunks", 0) < 0) { return ht_usage_error(err, "--chunks must be at least 0"); }
    const int64_t held = ht_args_int(args, "held-out", 8);
    if (held != 0 && held < 2) { return ht_usage_error(err, "--held-out must be 0 or at least 2"); }
    return HT_STATUS_OK;
}

static ht_status read_self(ht_calib_texts* out, const ht_source* source, const ht_tokenizer* tokenizer, const ht_calib_options* options, const ht_ctx* ctx, ht_error* err)
{
    ht_status     st    = HT_STATUS_OK;
    ht_model*     model = NULL;
    int32_t*      ids   = NULL;
    const int64_t n_chunks = options->n_chunks > 0 && options->n_chunks < SELF_CHUNKS ? options->n_chunks : SELF_CHUNKS;
    HT_TRY(ht_model_load(&model, source, HT_COMPUTE_FAST, ctx, err));
    HT_TRY(ht_self_text(model, tokenizer, options->n_ctx, n_chunks, ctx, &ids, err));
    HT_TRY(ht_calib_texts_from_ids(out, "self", ids, n_chunks * options->n_ctx, options, ctx, err));
done:
    ht_model_free(model);
    free(ids);
    return st;
}

static ht_status read_texts(ht_calib_texts* out, const ht_source* source, const ht_args* args, const ht_ctx* ctx, ht_error* err)
{
    ht_status        st        = HT_STATUS_OK;
    ht_tokenizer*    tokenizer = NULL;
    const int        n         = ht_args_count(args, "calib");
    const char**     paths     = calloc((size_t)n + 1, sizeof *paths);
    int              n_paths   = 0;
    bool             with_self = false;
    ht_calib_texts   texts = { 0 }, self = { 0 };
    ht_calib_options options = { ht_args_int(args, "ctx", 512), ht_args_int(args, "chunks", 0), ht_args_int(args, "held-out", 8), ht_args_has(args, "parse-special") };
    HT_CHECK(paths, NOMEM, "options");
    for (int k = 0; k < n; k++) {
        const char* path = ht_args_text_at(args, "calib", k);
        if (strcmp(path, "self") == 0) { with_self = true; }
        else { paths[n_paths++] = path; }
    }
    HT_TRY(ht_tokenizer_create(&tokenizer, ht_source_meta(source), err));
    if (n_paths > 0) { HT_TRY(ht_calib_texts_read(&texts, paths, n_paths, tokenizer, &options, ctx, err)); }
    if (with_self) {
        HT_TRY(read_self(&self, source, tokenizer, &options, ctx, err));
        if (n_paths > 0) { HT_TRY(ht_calib_texts_join(&texts, &self, err)); }
        else {
            texts = self;
            self  = (ht_calib_texts){ 0 };
        }
    }
    *out  = texts;
    texts = (ht_calib_texts){ 0 };
done:
    ht_calib_texts_deinit(&texts);
    ht_calib_texts_deinit(&self);
    ht_tokenizer_free(tokenizer);
    free(paths);
    return st;
}

ht_status ht_calibration_run(const ht_source* source, const ht_args* args, const char* path, const ht_collect_options* options, const ht_ctx* ctx,
                             ht_calib_texts* texts, ht_collect_report* report, ht_error* err)
{
    ht_status          st  = HT_STATUS_OK;
    ht_collect_options use = *options;
    HT_TRY(read_texts(texts, source, args, ctx, err));
    if (ht_args_has(args, "memory")) { HT_TRY(ht_parse_size(&use.memory_bytes, "--memory", ht_args_text(args, "memory", ""), err)); }
    HT_TRY(ht_collect_run(source, texts, path, &use, ctx, report, err));
done:
    return st;
}
