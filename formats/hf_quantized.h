/*
 * Checkpoints that somebody quantized already: FP8 weights with scales are read, everything else is refused with its name before any work.
 */
#ifndef HT_FORMATS_HF_QUANTIZED_H
#define HT_FORMATS_HF_QUANTIZED_H

#include "formats/hf_checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Errors: UNSUPPORTED "source is already quantized (bitsandbytes nf4); convert from the original", with up to three tensors that show it.
 * The word comes from quantization_config, or from names that only a quantizer leaves behind. "fp8" passes.
 */
ht_status ht_hf_check_quantized(const ht_hf_checkpoint* checkpoint, ht_error* err);

/*
 * The scale of an FP8 weight: value = f8 * scale[row / block_rows][col / block_cols]. Despite its name, weight_scale_inv is multiplied with.
 *   one value            per tensor
 *   [rows, 1]            per row
 *   ceil(rows / 128) …   per block; "weight_block_size" of quantization_config, blocks at the edges are smaller
 */
typedef struct ht_fp8_scale {
    const ht_hf_tensor* tensor; /* NULL: none, the bytes are the values */
    int64_t             block_rows, block_cols, n_cols;
} ht_fp8_scale;

/*
 * Finds the scale of `weight` (an F8 tensor): "<weight>_scale_inv" or "<weight>_scale".
 * Errors: FORMAT a scale is due (the configuration says fp8) and missing, or its shape does not fit.
 */
ht_status ht_fp8_scale_find(ht_fp8_scale* out, const ht_hf_checkpoint* checkpoint, const ht_hf_tensor* weight, ht_error* err);

/* Multiply one row of values by its scales. Thread-safe. Errors: IO, NOMEM. */
ht_status ht_fp8_scale_apply(const ht_fp8_scale* scale, int64_t row, float* values, int64_t n_cols, ht_error* err);

/* True for scales of activations and caches, which FP8 checkpoints carry and a weight file has no place for. */
bool ht_fp8_is_activation_scale(const char* name);

#ifdef __cplusplus
}
#endif
#endif
