/*
 * A Hugging Face checkpoint: config.json and the tensors of its .safetensors files, whichever way they are laid out.
 *
 *   folder/config.json
 *   folder/model.safetensors                              one file, or
 *   folder/model-00001-of-00003.safetensors …             a complete set of shards, or
 *   folder/model.safetensors.index.json                   an index: its weight_map decides, whatever else lies there
 *
 * Opening reads headers only and settles what would otherwise come out hours later: a missing shard (the FILE is named first), two generations
 * of files in one folder, an index that disagrees with its shards, a path that leaves the folder.
 */
#ifndef HT_FORMATS_HF_CHECKPOINT_H
#define HT_FORMATS_HF_CHECKPOINT_H

#include "formats/json_value.h"
#include "formats/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HT_HF_MAX_JSON_BYTES = 256 << 20 }; /* index files reach some 30 MB, tokenizer.json some 35 MB */

typedef struct ht_hf_checkpoint ht_hf_checkpoint;

typedef struct ht_hf_tensor {
    const ht_st_tensor*   tensor;
    const ht_safetensors* file; /* that holds it */
} ht_hf_tensor;

/*
 * `path` is the folder, or a single .safetensors file with its config.json beside it. Warnings (files that are not listed) go to `log`.
 * Errors: IO (no config.json, unreadable file); FORMAT (missing shards, an index that disagrees, a tensor in two files, no tensors);
 * UNSUPPORTED (only pickled weights); those of ht_safetensors_open and ht_json_read. Close with ht_hf_checkpoint_close (NULL allowed).
 */
ht_status ht_hf_checkpoint_open(ht_hf_checkpoint** out, const char* path, const ht_log* log, ht_error* err);
void      ht_hf_checkpoint_close(ht_hf_checkpoint* checkpoint);

const char*    ht_hf_checkpoint_folder(const ht_hf_checkpoint* checkpoint);
const ht_json* ht_hf_checkpoint_config(const ht_hf_checkpoint* checkpoint); /* config.json, members of text_config over the root's */

int64_t               ht_hf_checkpoint_n_files(const ht_hf_checkpoint* checkpoint);
const ht_safetensors* ht_hf_checkpoint_file_at(const ht_hf_checkpoint* checkpoint, int64_t index);    /* sorted by name            */
int64_t               ht_hf_checkpoint_n_tensors(const ht_hf_checkpoint* checkpoint);
const ht_hf_tensor*   ht_hf_checkpoint_tensor_at(const ht_hf_checkpoint* checkpoint, int64_t index);  /* sorted by name            */
const ht_hf_tensor*   ht_hf_checkpoint_find(const ht_hf_checkpoint* checkpoint, const char* name);    /* NULL when absent; O(log n) */

#ifdef __cplusplus
}
#endif
#endif
