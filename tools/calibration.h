/* What calibrate and quantize share: options that name calibration text, and the run that makes statistics of it. */
#ifndef HT_TOOLS_CALIBRATION_H
#define HT_TOOLS_CALIBRATION_H

#include "calib/collect.h"
#include "tools/cmd.h"

/* Rows for a command's option table: --calib, --ctx, --chunks, --held-out, --parse-special. */
#define HT_CALIBRATION_OPTIONS                                                                                                                             \
    { "calib", 0, HT_OPTION_TEXT, "TEXT", "calibration text: a file, a folder, .jsonl, - or self (the model writes it); repeat it for several kinds of text" }, \
    { "ctx", 0, HT_OPTION_INT, "N", "tokens per calibration chunk (512)" },                                                                                \
    { "chunks", 0, HT_OPTION_INT, "N", "at most so many calibration chunks, evenly from all texts (0: all)" },                                             \
    { "held-out", 0, HT_OPTION_INT, "N", "keep every N-th chunk of a text for checking; nothing is fitted to it (8; 0: none)" },                           \
    { "memory", 0, HT_OPTION_TEXT, "SIZE", "for the hidden states of the calibration text; more lies on disk (4GiB)" },                                    \
    { "parse-special", 0, HT_OPTION_FLAG, NULL, "control tokens written out in the text become those tokens" }

/* Usage errors of the options above. */
ht_status ht_calibration_check(const ht_args* args, ht_error* err);

/*
 * Reads (or makes) the texts, and collects statistics of `source` to `path`. `texts` is filled for reports; free it with ht_calib_texts_deinit.
 */
ht_status ht_calibration_run(const ht_source* source, const ht_args* args, const char* path, const ht_collect_options* options, const ht_ctx* ctx,
                             ht_calib_texts* texts, ht_collect_report* report, ht_error* err);

#endif
