#include "tools/file_choice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calib/divergence.h"

/* Enough to tell files apart that differ by a tenth, little beside the rounding. */
enum { MEASURED_TOKENS = 1536 };

/* ids (n_chunks, n_ctx) of the statistics' held-out chunks, evenly chosen; n_chunks 0 when there are none. */
static ht_status held_out_tokens(const ht_statistics* statistics, int32_t** ids, int64_t* n_ctx, int64_t* n_chunks, ht_error* err)
{
    ht_status         st = HT_STATUS_OK;
    const ht_meta*    meta = ht_statistics_meta(statistics);
    const ht_meta_kv* kv   = NULL;
    *n_chunks = *n_ctx = 0;
    HT_TRY(ht_meta_get_array(meta, HT_KEY_HELD_OUT_IDS, false, HT_META_TYPE_I32, &kv, err));
    HT_TRY(ht_meta_get_i64(meta, "imatrix.chunk_size", false, n_ctx, err));
    if (!kv || *n_ctx < 2) { return st; }
    const int64_t  n_all = (int64_t)kv->n_values / *n_ctx, n_max = MEASURED_TOKENS / *n_ctx > 1 ? MEASURED_TOKENS / *n_ctx : 1;
    const int32_t* all   = kv->data;
    *n_chunks = n_all < n_max ? n_all : n_max;
    *ids      = malloc((size_t)(*n_chunks * *n_ctx + 1) * sizeof **ids);
    HT_CHECK(*ids, NOMEM, "held-out tokens");
    for (int64_t k = 0; k < *n_chunks; k++) { memcpy(*ids + k * *n_ctx, all + (k * n_all / *n_chunks) * *n_ctx, (size_t)*n_ctx * sizeof **ids); }
done:
    return st;
}

/* The rival's paths by output: the plan's with a suffix. */
static ht_status write_rivals(ht_plan** rival, ht_stream_result* result, char* pattern, const ht_plan_options* options, const ht_calibration* calibration, const ht_source* source,
                              const ht_stream_options* stream, const ht_ctx* ctx, ht_error* err)
{
    ht_status         st  = HT_STATUS_OK;
    ht_plan_options   use = *options;
    ht_stream_options how = *stream;
    use.out         = pattern;
    use.calibration = calibration;
    how.force       = true; /* left by a run that was killed */
    how.resume      = false;
    HT_TRY(ht_plan_create(rival, source, &use, err));
    HT_TRY(ht_stream_run(*rival, &how, ctx, result, err));
done:
    return st;
}

static ht_status measure(ht_file_choice* choice, const ht_source* base, const char* path, const char* rival_path, const int32_t* ids, int64_t n_ctx, int64_t n_chunks,
                         const ht_ctx* ctx, ht_error* err)
{
    ht_status     st       = HT_STATUS_OK;
    ht_source *   files[2] = { NULL, NULL };
    ht_divergence d[2];
    memset(d, 0, sizeof d);
    HT_TRY(ht_source_open(&files[0], path, NULL, ctx, err));
    HT_TRY(ht_source_open(&files[1], rival_path, NULL, ctx, err));
    HT_TRY(ht_divergence_measure(d, base, (const ht_source* const*)files, 2, ids, n_ctx, n_chunks, ctx, err));
    *choice = (ht_file_choice){ true, d[1].mean < d[0].mean, d[0].mean, d[0].stderr_mean, d[1].mean, d[1].stderr_mean, n_chunks * n_ctx };
done:
    for (int k = 0; k < 2; k++) {
        ht_divergence_deinit(&d[k]);
        ht_source_close(files[k]);
    }
    return st;
}

ht_status ht_choose_files(ht_file_choice* choices, const ht_plan* plan, const ht_plan_options* options, const ht_stream_options* stream, ht_stream_result* result,
                          const ht_ctx* ctx, ht_error* err)
{
    ht_status            st           = HT_STATUS_OK;
    const ht_calibration importance   = { .statistics = plan->calibration->statistics, .method = HT_METHOD_IMATRIX };
    ht_plan*             rival        = NULL;
    ht_stream_result     rival_result = { 0 };
    ht_error             why          = HT_ERROR_INIT;
    int32_t*             ids          = NULL;
    int64_t              n_ctx = 0, n_chunks = 0;
    char*                pattern = malloc(strlen(options->out) + 16);
    memset(choices, 0, (size_t)plan->n_outputs * sizeof *choices);
    HT_CHECK(pattern, NOMEM, "options");
    sprintf(pattern, "%s.rival", options->out);
    HT_TRY(held_out_tokens(plan->calibration->statistics, &ids, &n_ctx, &n_chunks, err));
    if (n_chunks == 0) {
        ht_log_info(&ctx->log, "the statistics have no held-out tokens: the files are not measured");
        goto done;
    }
    st = write_rivals(&rival, &rival_result, pattern, options, &importance, plan->source, stream, ctx, &why);
    for (int k = 0; st == HT_STATUS_OK && k < plan->n_outputs; k++) {
        st = measure(&choices[k], plan->source, plan->outputs[k].path, rival->outputs[k].path, ids, n_ctx, n_chunks, ctx, &why);
        if (st != HT_STATUS_OK || !choices[k].is_importance) { continue; }
        if (rename(rival->outputs[k].path, plan->outputs[k].path) != 0) {
            choices[k].is_importance = false;
            ht_log_warn(&ctx->log, "%s: cannot be replaced by the file with importance rounding, which is closer", plan->outputs[k].path);
            continue;
        }
        memcpy(result->tensors + k * plan->n_tensors, rival_result.tensors + k * plan->n_tensors, (size_t)plan->n_tensors * sizeof *result->tensors);
    }
    if (st == HT_STATUS_CANCELLED) {
        if (err) { *err = why; }
    } else if (st != HT_STATUS_OK) { /* what was asked for is written; only the check is missing */
        ht_log_warn(&ctx->log, "the files are not measured on held-out text: %s", why.message);
        st = HT_STATUS_OK;
    }
done:
    for (int k = 0; rival && k < rival->n_outputs; k++) { (void)unlink(rival->outputs[k].path); }
    ht_stream_result_deinit(&rival_result);
    ht_plan_free(rival);
    free(ids);
    free(pattern);
    return st;
}
