/*
 * The GGUF container, versions 2 and 3 (read) and 3 (written), little-endian.
 *
 *   | "GGUF" | u32 version | u64 n_tensors | u64 n_kv | kv … | tensor info … | pad | tensor data, each padded to the alignment |
 *
 * Files are hostile: every length is checked against the bytes that are left, element counts against overflow, names against duplicates.
 * Source: ggml docs/gguf.md.
 */
#ifndef HT_FORMATS_GGUF_H
#define HT_FORMATS_GGUF_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/file.h"
#include "formats/meta.h"
#include "formats/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HT_GGUF_MAX_DIMS          = 4,  /* ggml's GGML_MAX_DIMS                                           */
    HT_GGUF_MAX_NAME          = 63, /* ggml keeps names in char[64]; longer ones are cut there        */
    HT_GGUF_DEFAULT_ALIGNMENT = 32,
    HT_GGUF_MAX_ALIGNMENT     = 1 << 21 /* a huge page; a larger one only makes a small header into a large one */
};

/* A tensor of a file, read or to be written. Dimensions are in ne order: ne[0] is the row length (fastest), unused ones are 1. */
typedef struct ht_tensor_info {
    char     name[HT_GGUF_MAX_NAME + 1];
    ht_type  type;
    int      n_dims;
    int64_t  ne[HT_GGUF_MAX_DIMS];
    uint64_t offset_bytes; /* from the start of the data section   */
    uint64_t n_bytes;      /* without padding                      */
} ht_tensor_info;

int64_t ht_tensor_n_rows(const ht_tensor_info* info);  /* ne[1] * ne[2] * ne[3] */
int64_t ht_tensor_n_elems(const ht_tensor_info* info);

/* Fill n_bytes from type, n_dims and ne. Errors: ARG (rows do not fill blocks, a dimension < 1, ne[n_dims …] not 1), BOUNDS overflow. */
ht_status ht_tensor_info_size(ht_tensor_info* info, ht_error* err);

/* What is wrong with a tensor name of a file (empty, over HT_GGUF_MAX_NAME bytes, a NUL inside, not UTF-8), or NULL. */
const char* ht_tensor_name_fault(const char* name, size_t n_bytes);

/*
 * general.alignment, else HT_GGUF_DEFAULT_ALIGNMENT. Errors: FORMAT unless it is a u32 and a power of two, as stock readers
 * require, and at most HT_GGUF_MAX_ALIGNMENT.
 */
ht_status ht_gguf_alignment(const ht_meta* meta, uint64_t* out, ht_error* err);

/* --- reading ----------------------------------------------------------------------------------------------------------- */

typedef struct ht_gguf ht_gguf;

/*
 * Read and check the header; no tensor data is read. Errors: IO, FORMAT, BOUNDS (truncated: the tensor, needed and available bytes),
 * UNSUPPORTED (version, unknown tensor type). Close with ht_gguf_close (NULL allowed).
 */
ht_status ht_gguf_open(ht_gguf** out, const char* path, ht_error* err);
void      ht_gguf_close(ht_gguf* gguf);

uint32_t              ht_gguf_version(const ht_gguf* gguf);
const ht_file*        ht_gguf_file(const ht_gguf* gguf);
const ht_meta*        ht_gguf_meta(const ht_gguf* gguf);
uint64_t              ht_gguf_data_offset(const ht_gguf* gguf);
int64_t               ht_gguf_n_tensors(const ht_gguf* gguf);
const ht_tensor_info* ht_gguf_tensor_at(const ht_gguf* gguf, int64_t index);           /* in file order            */
const ht_tensor_info* ht_gguf_find_tensor(const ht_gguf* gguf, const char* name);      /* NULL when absent; O(1)   */

/* Bytes [offset, offset + n_bytes) of a tensor. Thread-safe. Errors: BOUNDS outside the tensor, IO. */
ht_status ht_gguf_read(const ht_gguf* gguf, const ht_tensor_info* tensor, uint64_t offset, void* buf, uint64_t n_bytes, ht_error* err);

/* --- writing ----------------------------------------------------------------------------------------------------------- */

/*
 * Lay out a file: sets offset_bytes (and n_bytes) of every tensor in the order given and builds the header.
 *   header        *out_header is malloc'd, *out_n_header bytes including the padding up to the data section; owned by the caller
 *   out_n_file    exact size of the finished file, the padding after the last tensor included
 * The alignment is general.alignment of `meta`, else 32. Errors: ARG duplicate or faulty name, bad shape; FORMAT
 * bad alignment; NOMEM; BOUNDS.
 */
ht_status ht_gguf_layout(const ht_meta* meta, ht_tensor_info* tensors, int64_t n_tensors, void** out_header, size_t* out_n_header,
                         uint64_t* out_n_file, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
