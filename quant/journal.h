/*
 * What a long run has finished, so that it can go on after it was killed: "<first output>.journal", a text that identifies the task and one record per finished tensor and
 * output. A record vouches for nothing by itself: the tensor's bytes in the .part file must have its CRC.
 */
#ifndef HT_QUANT_JOURNAL_H
#define HT_QUANT_JOURNAL_H

#include "quant/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_journal ht_journal;

/*
 * Opens the journal of the plan's run. With `resume` what it holds is read; a journal of another task is ARG (the first line that differs is named), none is an empty one.
 * Errors: ARG; IO; NOMEM.
 */
ht_status ht_journal_open(ht_journal** out, const ht_plan* plan, bool resume, const ht_ctx* ctx, ht_error* err);
void      ht_journal_close(ht_journal* journal, bool remove); /* NULL allowed */

/* NULL when the tensor was not finished for this output. Valid until the journal is closed. */
const ht_stream_tensor* ht_journal_find(const ht_journal* journal, int output, int64_t tensor);
ht_status               ht_journal_add(ht_journal* journal, int output, int64_t tensor, const ht_stream_tensor* done, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
