/*
 * The automatic method's last word, on whole files: each written file, and the same file with plain importance rounding, are measured on the statistics' held-out
 * tokens, and what is closer to the source stays under the final name.
 */
#ifndef HT_TOOLS_FILE_CHOICE_H
#define HT_TOOLS_FILE_CHOICE_H

#include "quant/stream.h"

typedef struct ht_file_choice {
    bool   measured;                        /* else the rest says nothing                                     */
    bool   is_importance;                   /* importance rounding was closer and took the file's place       */
    double kl, kl_stderr;                   /* of the method's file: nats per token, all weights decoded       */
    double kl_importance, kl_importance_stderr;
    int64_t n_tokens;
} ht_file_choice;

/*
 * After ht_stream_run with the method AUTO. `options` are those the plan was made of. choices: plan->n_outputs. Where importance rounding wins, `result` becomes
 * its report. Nothing is measured (and a note says why) when the statistics have no held-out tokens or the family has no layer-by-layer runner.
 * Errors: CANCELLED; ARG statistics of another model; others are warnings, since the files are whole.
 */
ht_status ht_choose_files(ht_file_choice* choices, const ht_plan* plan, const ht_plan_options* options, const ht_stream_options* stream, ht_stream_result* result,
                          const ht_ctx* ctx, ht_error* err);

#endif
