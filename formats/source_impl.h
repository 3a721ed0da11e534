/*
 * What a kind of source provides behind ht_source (source.h): source_hf.c and source_gguf.c fill one of these. Only they and source.c include it.
 */
#ifndef HT_FORMATS_SOURCE_IMPL_H
#define HT_FORMATS_SOURCE_IMPL_H

#include "formats/base/name_map.h"
#include "formats/source.h"

/* Rows are checked by source.c: row, n_rows >= 0 and inside the tensor. `index` is the tensor's place in `tensors`. */
typedef struct ht_source_ops {
    const char* kind; /* "hf", "gguf" */
    void      (*close)(void* self);
    ht_status (*read_rows_f32)(const void* self, int64_t index, int64_t row, int64_t n_rows, float* out, ht_error* err);
    bool      (*has_raw)(const void* self, int64_t index);
    ht_status (*read_rows_raw)(const void* self, int64_t index, int64_t row, int64_t n_rows, void* out, ht_error* err);
    /* Files that identify the source, in any order: false after the last. `n_header` bytes from the start of the file are hashed. */
    bool      (*file_at)(const void* self, int64_t index, const ht_file** file, uint64_t* n_header);
} ht_source_ops;

struct ht_source {
    const ht_source_ops* ops;
    void*                self; /* of the kind, freed by ops->close */
    char*                path;
    char*                name;
    ht_meta*             meta;
    ht_source_tensor*    tensors;
    int64_t              n_tensors, capacity;
    ht_name_map*         by_name;
    bool                 allow_nonfinite;
};

/* Append a tensor; info.n_bytes is computed here. `origin` and `transform` must live as long as the source. Errors: NOMEM; those of the size. */
ht_status ht_source_add_tensor(ht_source* source, const ht_tensor_info* info, const char* origin, const char* transform, ht_error* err);

/* Fill an ht_source whose path and name are set; on failure the caller closes it. */
ht_status ht_source_hf_open(ht_source* source, const ht_source_options* options, const ht_log* log, ht_error* err);
ht_status ht_source_gguf_open(ht_source* source, ht_error* err);

#endif
