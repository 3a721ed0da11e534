/*
 * A checkpoint of any kind seen as if it were a GGUF: metadata under GGUF keys, tensors under GGUF names and shapes, rows on demand.
 *
 *   HF folder (config.json + *.safetensors + tokenizer files)  --family table (arch_*.c)-->  names, transforms, keys
 *   .safetensors file with its config.json beside it           --same-->
 *   .gguf (single or split)                                    --as is-->
 *
 * Opening reads headers only; weights are looked at in one case, a checkpoint that keeps an output matrix although it is tied (a copy is left
 * out). Everything that could be refused is refused here: missing shards, unknown families, tensors that map to nothing, shapes that disagree
 * with the configuration, tokenizer and embedding sizes that do not fit.
 */
#ifndef HT_FORMATS_SOURCE_H
#define HT_FORMATS_SOURCE_H

#include "formats/base/ctx.h"
#include "formats/gguf.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_source ht_source;

typedef struct ht_source_options {
    bool        allow_nonfinite; /* pass NaN and Inf on instead of refusing them          */
    const char* pre_tokenizer;   /* --pre NAME: force tokenizer.ggml.pre; NULL: detect    */
} ht_source_options;

/* How one tensor comes about, for --dry-run and for provenance. */
typedef struct ht_source_tensor {
    ht_tensor_info info;          /* name, native type (f32/f16/bf16 or quantized), shape; offset_bytes is 0. HF sources: vectors (norms,
                                     biases) are f32 whatever is stored, FP8 matrices bf16, F64 ones f32; they have no raw bytes then    */
    const char*    origin;        /* source tensor name ("model.layers.0.self_attn.q_proj.weight"), or "(computed)"  */
    const char*    transform;     /* "copy", "convert" (of the type only), "permute", "fp8-dequant", "fp8-dequant, permute", "computed" */
} ht_source_tensor;

/*
 * `options` may be NULL. Warnings (tokens padded, unlisted shards, dropped tensors) go to ctx->log.
 * Errors: IO, FORMAT, BOUNDS, UNSUPPORTED, each with file and tensor or key.
 */
ht_status ht_source_open(ht_source** out, const char* path, const ht_source_options* options, const ht_ctx* ctx, ht_error* err);
void      ht_source_close(ht_source* source);

const char*    ht_source_path(const ht_source* source);
const char*    ht_source_name(const ht_source* source); /* for {name}: folder or file name without ending         */
const char*    ht_source_kind(const ht_source* source); /* "hf" or "gguf"                                         */
bool           ht_source_is_quantized(const ht_source* source); /* any tensor of a block type                     */
const ht_meta* ht_source_meta(const ht_source* source);  /* no split.* keys; general.file_type as the source has it */

/* Tensors in the order a stock converter writes them: token_embd, blk.0 …, output_norm, output; GGUF sources keep their order. */
int64_t                 ht_source_n_tensors(const ht_source* source);
const ht_source_tensor* ht_source_tensor_at(const ht_source* source, int64_t index);
const ht_source_tensor* ht_source_find_tensor(const ht_source* source, const char* name);

/*
 * Rows [row, row + n_rows) of a tensor, in the order of the GGUF tensor (permutations applied).
 * _f32 decodes; a non-finite value is NUMERIC with row and column unless allow_nonfinite. So it is for _raw of f32, f16 and bf16.
 * _raw gives the bytes in the native type: only for sources where no arithmetic is needed, which ht_source_has_raw tells (copy, permute).
 * `out` n_rows * ne[0] f32 (n_rows * row bytes). Allocates scratch of a few rows per call. Thread-safe.
 */
ht_status ht_source_read_rows_f32(const ht_source* source, const ht_source_tensor* tensor, int64_t row, int64_t n_rows, float* out,
                                  ht_error* err);
bool      ht_source_has_raw(const ht_source* source, const ht_source_tensor* tensor);
ht_status ht_source_read_rows_raw(const ht_source* source, const ht_source_tensor* tensor, int64_t row, int64_t n_rows, void* out,
                                  ht_error* err);

/*
 * A hash that identifies the source for provenance: SHA-256 over the sorted list of (file name, size, header bytes); cheap, reads no weights.
 */
ht_status ht_source_sha256(const ht_source* source, char out[65], ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
