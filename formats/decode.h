/*
 * From blocks to numbers. One decoder per row of types.def, bit-exact with the reference decode of the format.
 */
#ifndef HT_FORMATS_DECODE_H
#define HT_FORMATS_DECODE_H

#include <stdint.h>

#include "formats/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * blocks   n_elems / block_elems whole blocks, any alignment
 * out      n_elems f32, owned by the caller
 * n_elems  a multiple of the block
 */
typedef void (*ht_decode_row_fn)(const void* restrict blocks, float* restrict out, int64_t n_elems);

/* Never NULL for a type of the table. */
ht_decode_row_fn ht_decode_row_get(ht_type type);

#define HT_TYPE_RAW(stem, id, name, elems, bytes) \
    void ht_##stem##_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems);
#define HT_TYPE_HALF(stem, id, name, elems, bytes) \
    void ht_##stem##_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems);
#define HT_TYPE_READ(stem, id, name, elems, bytes) \
    void ht_##stem##_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems);
#define HT_TYPE_CODEC(stem, id, name, elems, bytes, dot, fallback, rel_rmse_max) \
    void ht_##stem##_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems);
#include "formats/types.def"

#ifdef __cplusplus
}
#endif
#endif
