/*
 * A model in several GGUF files. Each part is a whole GGUF; the first holds the model's metadata, the others little more than the split keys.
 *
 *   name-00001-of-00003.gguf   split.no 0   split.count 3   split.tensors.count: tensors of all parts together
 *   name-00002-of-00003.gguf   split.no 1   …               names count from 1, split.no from 0
 *
 * Source: llama.cpp's gguf-split tool (keys, file names).
 */
#ifndef HT_FORMATS_GGUF_SPLIT_H
#define HT_FORMATS_GGUF_SPLIT_H

#include "formats/gguf.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HT_GGUF_MAX_PARTS = 65535 }; /* split.count is a u16 */

/*
 * Open all parts of the model that `path` belongs to: any part leads to the others through its file name. A file that is not split gives one part.
 *   out_parts    malloc'd array in order of split.no; release it with ht_gguf_split_close
 * Errors: those of ht_gguf_open; FORMAT when a part is missing (its file is named), when parts disagree (file, key, expected, found) or share a
 * tensor name.
 */
ht_status ht_gguf_split_open(ht_gguf*** out_parts, int* out_n_parts, const char* path, ht_error* err);
void      ht_gguf_split_close(ht_gguf** parts, int n_parts); /* NULL allowed */

/* The tensor and, in *out_part, the file that holds it; NULL when absent. */
const ht_tensor_info* ht_gguf_split_find(ht_gguf* const* parts, int n_parts, const char* name, const ht_gguf** out_part);

/* True for the keys that tell parts apart and have no place in a file of its own: split.no, split.count, split.tensors.count. */
bool ht_gguf_is_split_key(const char* key);

#ifdef __cplusplus
}
#endif
#endif
