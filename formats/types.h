/*
 * Tensor types: the enum and the facts of formats/types.def, and the sizes that follow from them.
 * All functions are pure and thread-safe.
 */
#ifndef HT_FORMATS_TYPES_H
#define HT_FORMATS_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values are the ggml type numbers found in files. */
typedef enum ht_type {
#define HT_TYPE_RAW(stem, id, name, elems, bytes) HT_TYPE_##stem = id,
#define HT_TYPE_HALF(stem, id, name, elems, bytes) HT_TYPE_##stem = id,
#define HT_TYPE_READ(stem, id, name, elems, bytes) HT_TYPE_##stem = id,
#define HT_TYPE_CODEC(stem, id, name, elems, bytes, dot, fallback, rel_rmse_max) HT_TYPE_##stem = id,
#include "formats/types.def"
    HT_TYPE_END /* one past the largest id */
} ht_type;

typedef struct ht_type_info {
    ht_type     type;
    const char* name;         /* as in llama.cpp: "Q4_K"                                             */
    const char* stem;         /* as in file and function names: "q4_k"                               */
    int         block_elems;  /* values per block                                                    */
    int         block_bytes;
    bool        is_float;     /* f32, f16, bf16: readable, writable, not quantized                   */
    bool        can_encode;   /* an encoder exists (the floats included)                             */
    bool        is_quantized; /* neither a float nor a plain integer                                 */
    ht_type     dot;          /* activation type that it is multiplied with; f32 when it has none    */
    ht_type     fallback;     /* for rows that do not fill the blocks; itself when block_elems is 1  */
    float       rel_rmse_max; /* 0: no bound                                                         */
} ht_type_info;

/* NULL for an id that no row has: ids come from files. */
const ht_type_info* ht_type_get(uint32_t id);

/* By name or stem, case-insensitive; NULL when unknown. */
const ht_type_info* ht_type_find(const char* name);

/* Bits per weight of whole blocks: 4.5 for Q4_0. */
double ht_type_bits(const ht_type_info* info);

/* Bytes of a row. Errors: ARG n_elems < 0 or not a multiple of the block; BOUNDS overflow. */
ht_status ht_row_bytes(const ht_type_info* info, int64_t n_elems, size_t* out, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
