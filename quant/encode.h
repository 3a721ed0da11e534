/*
 * From numbers to blocks. Encoders are pure functions of one row: the same bytes for any thread count, any instruction set.
 */
#ifndef HT_QUANT_ENCODE_H
#define HT_QUANT_ENCODE_H

#include <stdint.h>

#include "formats/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * x           n_elems finite f32
 * blocks      n_elems / block_elems blocks, owned by the caller, written whole
 * n_elems     a multiple of the block
 * importance  n_elems weights >= 0 (mean square of the activations that meet each column), or NULL; a block whose weights are all zero
 *             is encoded as if they were all one
 * Guarantees: an all-zero block decodes to exact zeros; no NaN or Inf in any scale field for finite input; values below the smallest
 * representable scale decode to 0. Minimises sum importance[i] * (x[i] - decoded[i])^2 per block, heuristically for the searched types.
 */
typedef void (*ht_encode_row_fn)(const float* restrict x, void* restrict blocks, int64_t n_elems,
                                 const float* restrict importance);

/*
 * The fastest encoder for a type among those that need only `cpu_features` (ht_isa_features): all of them give the same bytes.
 * NULL when the type cannot be encoded.
 */
ht_encode_row_fn ht_encode_row_get(ht_type type, uint32_t cpu_features);

#define HT_TYPE_HALF(stem, id, name, elems, bytes)                                                \
    void ht_##stem##_encode_row_ref(const float* restrict x, void* restrict blocks, int64_t n_elems, \
                                    const float* restrict importance);
#define HT_TYPE_CODEC(stem, id, name, elems, bytes, dot, fallback, rel_rmse_max)                  \
    void ht_##stem##_encode_row_ref(const float* restrict x, void* restrict blocks, int64_t n_elems, \
                                    const float* restrict importance);
#include "formats/types.def"

#ifdef __cplusplus
}
#endif
#endif
