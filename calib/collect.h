/*
 * Collecting statistics: the model is run over the calibration chunks layer by layer, forward and then backward, with the weights of one layer in
 * memory at a time.
 *
 *   forward    embed all chunks; layer 0 … L-1: read the weights, run all chunks, keep the layer's input in the work folder
 *   head       logits of each chunk, a label sampled from them per position, gradient of its log-probability
 *   backward   layer L-1 … 0: read the weights, per chunk: forward once more from the kept input with all intermediates, then backward;
 *              x of every linear, and its output gradient g, give the Hessians; the gradient goes on to the layer below
 *
 * Other kinds do without the gradients: Hessians are plain then, or plain times a factor found by trying (probe.h), which is faster and compares matrices nearly
 * as well, but does not tell tokens and rows apart.
 * All arithmetic is f32 with f64 sums over chunks; every sum has a fixed order, so the file does not depend on the number of threads.
 */
#ifndef HT_CALIB_COLLECT_H
#define HT_CALIB_COLLECT_H

#include "calib/texts.h"
#include "formats/source.h"
#include "quant/statistics.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ht_collect_kind {
    HT_COLLECT_IMPORTANCE, /* sums of squares, maxima and counts; no Hessian: the smallest file     */
    HT_COLLECT_PLAIN,      /* plain Hessians                                                        */
    HT_COLLECT_PROBED,     /* plain Hessians times a factor per matrix: "guided" ones in the file    */
    HT_COLLECT_GUIDED      /* guided Hessians (fitted and held out) and row weights                 */
} ht_collect_kind;

typedef struct ht_collect_options {
    ht_collect_kind kind;
    bool            force;  /* replace `path`                                                                        */
    uint64_t        memory_bytes; /* hidden states beyond this lie in the work folder; 0: 4 GiB                      */
    bool            resume; /* go on from a work folder that an interrupted run left; else such a folder is removed  */
} ht_collect_options;

typedef struct ht_collect_report {
    int64_t n_tokens, n_tokens_held_out;
    int64_t n_zero_columns;        /* over all matrices                                                       */
    int64_t n_layers_resumed;      /* steps found done in the work folder                                     */
    double  nll_mean;              /* of the calibration text under the model, nats per token                 */
    double  forward_s, backward_s; /* wall                                                                    */
    double  flops;                 /* arithmetic done, counted from the shapes                                */
} ht_collect_report;

/*
 * Writes `path`. The work folder is `path` + ".work"; it is removed on success and kept when the run is interrupted or killed. With `resume` the
 * finished steps in it are used if they belong to the same source, chunks, options and version (else: ARG, saying which differs).
 * ctx->seed seeds the sampled labels; each chunk has its own stream.
 * Errors: UNSUPPORTED architecture; NUMERIC the first non-finite value (layer, chunk, position); FORMAT; IO; NOMEM; CANCELLED.
 */
ht_status ht_collect_run(const ht_source* source, const ht_calib_texts* texts, const char* path, const ht_collect_options* options,
                         const ht_ctx* ctx, ht_collect_report* report, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
