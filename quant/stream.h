/*
 * Carrying out a plan: every work item reads a range of rows once, encodes it for each output and writes it to its place.
 *
 *      source rows --read--> f32 --encode--> blocks --write at offset--> output 0
 *                                 \-encode--> blocks --write at offset--> output 1 …
 *
 * Memory is a few MiB per thread whatever the model's size; with Hessians, those of one tensor besides. The bytes do not depend on the number of
 * threads.
 */
#ifndef HT_QUANT_STREAM_H
#define HT_QUANT_STREAM_H

#include "formats/base/ctx.h"
#include "quant/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What encoding did to one tensor, measured by decoding what was written. */
typedef struct ht_stream_tensor {
    uint32_t crc32;
    double   sum_sq_err, sum_sq; /* of the f32 source values                                              */
    double   max_err;
    int64_t  n_zeroed_rows;      /* rows with non-zero values that decode to zeros: under the smallest scale  */
    double   cost, cost_held_out; /* estimated KL divergence on the fitted and the held-out text; NaN without Hessians */
    ht_round_report rounding;    /* of error feedback; zeros else                                             */
    char     method[32];         /* what was done: "gptq shrink 0.1", "imatrix", "rtn", "copy" …              */
    double   held_out_gain;      /* AUTO: cost of importance rounding / cost of what was chosen, on a sample of rows */
} ht_stream_tensor;

typedef struct ht_stream_result {
    int               n_outputs;
    int64_t           n_tensors;
    ht_stream_tensor* tensors; /* [output * n_tensors + tensor] */
} ht_stream_result;

typedef struct ht_stream_options {
    bool force;            /* replace existing files                                            */
    bool resume;           /* go on with the .part files and the journal that an interrupted run with Hessians left   */
    bool allow_nonfinite;  /* write NaN and Inf (the source must have been opened to allow it)  */
} ht_stream_options;

/*
 * Writes all outputs, or none: on any failure the temporary files are removed; a run that rounds against Hessians, and so takes long, leaves them (".part") and a
 * journal when it is interrupted or killed. `result` is filled on success; free it with
 * ht_stream_result_deinit.
 * Errors: IO (exists, no space: needed and free bytes, write failed), NUMERIC (tensor, row, column, value), CANCELLED, NOMEM.
 */
ht_status ht_stream_run(const ht_plan* plan, const ht_stream_options* options, const ht_ctx* ctx, ht_stream_result* result, ht_error* err);
void      ht_stream_result_deinit(ht_stream_result* result);

/* Bytes that ht_stream_run will hold at most besides the source's headers: for --dry-run. */
uint64_t ht_stream_memory_bytes(const ht_plan* plan, int n_threads);

#ifdef __cplusplus
}
#endif
#endif
