/*
 * How a tensor is rounded when statistics are at hand: one method for all, or chosen per tensor by what holds on text that nothing was fitted to.
 */
#ifndef HT_QUANT_CALIBRATED_H
#define HT_QUANT_CALIBRATED_H

#include "quant/tensor_statistics.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ht_fold;

typedef enum ht_method {
    HT_METHOD_RTN,     /* no statistics                                                                             */
    HT_METHOD_IMATRIX, /* the encoders with importance: mean squares of the inputs, as llama-quantize uses them     */
    HT_METHOD_GPTQ,    /* error feedback against the (guided) Hessian                                               */
    HT_METHOD_AUTO,    /* per tensor the candidate that costs least on the held-out text                            */
    HT_METHOD_AWQ,     /* channel scales folded into the weights (fold.h), then the encoders with importance        */
    HT_METHOD_AWQ_GPTQ /* channel scales, then error feedback                                                       */
} ht_method;

const char* ht_method_name(ht_method method); /* "rtn", "imatrix", "gptq", "auto", "awq", "awq+gptq" */
bool        ht_method_folds(ht_method method);
bool        ht_method_needs_hessians(ht_method method);
bool        ht_method_find(const char* name, ht_method* out);

typedef struct ht_calibration {
    const ht_statistics* statistics; /* NULL: none; method is RTN then                */
    ht_method            method;
    double               damping;    /* of GPTQ: 0.01                                 */
    int                  n_sweeps;   /* of descent: 3                                 */
} ht_calibration;

/* A candidate of the automatic choice, and what it costs on a sample of rows. */
typedef struct ht_round_candidate {
    ht_round_options options;
    const char*      name;     /* "imatrix", "gptq", "gptq damp 0.1" …                           */
    double           cost;     /* estimated KL divergence on held-out text, whole tensor         */
} ht_round_candidate;

enum { HT_CANDIDATES_MAX = 8 };

/* Everything that rounding one tensor to one type needs; read-only while rows are rounded. */
typedef struct ht_tensor_rounding {
    const ht_tensor_statistics* statistics;
    ht_method                   method;     /* IMATRIX or GPTQ: what is done                                      */
    ht_rounding*                rounding;   /* of GPTQ                                                            */
    ht_rounding_notes           notes;
    ht_round_candidate          candidates[HT_CANDIDATES_MAX];
    int                         n_candidates, chosen; /* AUTO: candidates[0] is importance rounding; else 0 and 0 */
} ht_tensor_rounding;

/*
 * A tensor without Hessians (idle expert, importance matrix only) is rounded with its importance, without importance plainly (method RTN).
 * `statistics` (folded already) must outlive the result; `fold` is what is done to the rows before (fold.h), or NULL. Errors: those of ht_rounding_create and of reading rows.
 */
ht_status ht_tensor_rounding_init(ht_tensor_rounding* out, const ht_calibration* calibration, const ht_tensor_statistics* statistics,
                                  const struct ht_fold* fold, const ht_source* source, const ht_source_tensor* tensor, ht_type type, const ht_ctx* ctx, ht_error* err);
void      ht_tensor_rounding_deinit(ht_tensor_rounding* rounding);

/* Rows [row, row + n_rows) of the tensor, x (n_rows, n), to blocks. `report` may be NULL. Thread-safe with a worker per thread. */
void ht_tensor_rounding_rows(const ht_tensor_rounding* rounding, ht_round_worker* worker, ht_type type, uint32_t cpu_features, int64_t rows_per_mat,
                             const float* x, int64_t row, int64_t n_rows, void* blocks, ht_round_report* report);

#ifdef __cplusplus
}
#endif
#endif
