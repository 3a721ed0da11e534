/*
 * One .safetensors file.
 *
 *   | u64 n_header | header: JSON of n_header bytes | data |
 *   header: { "__metadata__": {string: string}, "name": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [begin, end]}, … }
 *
 * The ranges must cover the data without hole or overlap, in any order of keys. Headers above 100 MB are refused, as the reference reader does:
 * nobody else could open such a file. Source: the safetensors format description.
 */
#ifndef HT_FORMATS_SAFETENSORS_H
#define HT_FORMATS_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/file.h"
#include "formats/base/log.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HT_SAFETENSORS_MAX_HEADER_BYTES = 100000000, /* the reference reader's limit                               */
    HT_SAFETENSORS_MAX_DIMS         = 8          /* the format has none; checkpoints have at most 5            */
};

typedef enum ht_dtype {
    HT_DTYPE_F64, HT_DTYPE_F32, HT_DTYPE_F16, HT_DTYPE_BF16, HT_DTYPE_F8_E4M3, HT_DTYPE_F8_E5M2, HT_DTYPE_F8_E8M0,
    HT_DTYPE_I64, HT_DTYPE_I32, HT_DTYPE_I16, HT_DTYPE_I8, HT_DTYPE_U64, HT_DTYPE_U32, HT_DTYPE_U16, HT_DTYPE_U8, HT_DTYPE_BOOL,
    HT_DTYPE_COUNT
} ht_dtype;

const char* ht_dtype_name(ht_dtype dtype);     /* "BF16" */
int         ht_dtype_bytes(ht_dtype dtype);    /* of one value */
bool        ht_dtype_is_float(ht_dtype dtype); /* the dtypes that can be read as f32 */

typedef struct ht_safetensors ht_safetensors;

typedef struct ht_st_tensor {
    const char* name;                           /* owned by the ht_safetensors                                       */
    ht_dtype    dtype;
    int         n_dims;                         /* 0: a scalar                                                       */
    int64_t     shape[HT_SAFETENSORS_MAX_DIMS]; /* as in the file: slowest first; a 0 is legal                       */
    int64_t     n_elems;
    uint64_t    offset_bytes;                   /* in the file                                                       */
    uint64_t    n_bytes;
} ht_st_tensor;

/*
 * Read and check the header. Metadata that is not strings is logged and passed over.
 * Errors, with file, tensor and position: IO; BOUNDS (the header or a tensor leaves the file); FORMAT (JSON, duplicate keys, sizes, holes,
 * overlaps, trailing bytes); UNSUPPORTED (dtypes below a byte, complex ones, header limit). Close with ht_safetensors_close (NULL allowed).
 */
ht_status ht_safetensors_open(ht_safetensors** out, const char* path, const ht_log* log, ht_error* err);
void      ht_safetensors_close(ht_safetensors* st);

const ht_file*      ht_safetensors_file(const ht_safetensors* st);
uint64_t            ht_safetensors_n_header(const ht_safetensors* st);                     /* bytes before the data        */
int64_t             ht_safetensors_n_tensors(const ht_safetensors* st);
const ht_st_tensor* ht_safetensors_tensor_at(const ht_safetensors* st, int64_t index);     /* in the order of the data     */
const ht_st_tensor* ht_safetensors_find(const ht_safetensors* st, const char* name);       /* NULL when absent; O(log n)   */

/* Elements [elem, elem + n_elems), as stored or as f32 (float dtypes only: ARG). `out` is the caller's. Thread-safe. Errors: BOUNDS, IO, NOMEM. */
ht_status ht_safetensors_read_raw(const ht_safetensors* st, const ht_st_tensor* tensor, int64_t elem, int64_t n_elems, void* out, ht_error* err);
ht_status ht_safetensors_read_f32(const ht_safetensors* st, const ht_st_tensor* tensor, int64_t elem, int64_t n_elems, float* out, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
