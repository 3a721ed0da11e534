/*
 * What each type would cost each tensor: the table that the mix is chosen from.
 *
 * For every tensor and every legal type the rows are rounded with importance (the diagonal of the Hessian), and the estimated KL divergence of the errors
 * is added up (tensor_statistics.h). Errors of error feedback would be in-sample, so they are not used here. Of long tensors an even sample of rows stands
 * for all.
 */
#ifndef HT_QUANT_SENSITIVITY_H
#define HT_QUANT_SENSITIVITY_H

#include "quant/mix.h"
#include "quant/tensor_statistics.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_sensitivity_options {
    double                value_factor; /* cost of attn_v is multiplied with it: its error does not average out over positions (measured about 2)     */
    uint64_t              alignment;    /* n_bytes are padded to it                                                                                  */
    const ht_type* const* also;         /* n_also times n_tensors types: choices beside the usual ones, so that mixes can be compared with recipes   */
    int                   n_also;       /* at least 1                                                                                                */
    const bool*           is_fixed;     /* n_tensors, or NULL: also[0][i] is the only choice of tensor i, at its cost                                */
} ht_sensitivity_options;

/* Stock llama.cpp has no fast prompt kernel for this type on CPUs. */
bool ht_type_is_slow_on_cpu(ht_type type);

/*
 * items[i] for tensor i of the source, n_tensors of them, owned by the caller: tensors that are not quantized, or have no statistics, have one choice: also[0][i],
 * at no cost.
 * Errors: IO; NUMERIC; NOMEM; CANCELLED.
 */
ht_status ht_sensitivity_table(ht_mix_item* items, const ht_source* source, const ht_statistics* statistics, const ht_sensitivity_options* options,
                               const ht_ctx* ctx, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
