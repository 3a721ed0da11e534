/*
 * config.json and generation_config.json of a known family -> sizes and metadata keys. The tokenizer's keys are hf_tokenizer.h's part.
 */
#ifndef HT_FORMATS_CONFIG_IMPORT_H
#define HT_FORMATS_CONFIG_IMPORT_H

#include "formats/arch.h"
#include "formats/base/log.h"
#include "formats/json_value.h"
#include "formats/meta.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "hidden_size", "num_attention_heads x head_dim": a size as the configuration calls it. */
const char* ht_size_name(ht_size size);

/*
 * The family: by "architectures", else by "model_type". Errors: UNSUPPORTED (the known classes are listed); FORMAT (neither is there, or they
 * name two different families).
 */
ht_status ht_config_find_arch(const ht_arch** out, const ht_json* config, ht_error* err);

/*
 * All sizes but HT_SIZE_VOCAB, which is left 0. Errors: FORMAT missing or impossible numbers; UNSUPPORTED switches that no family here has
 * (another activation than SiLU, partial rotary embedding).
 */
ht_status ht_config_read_sizes(int64_t sizes[HT_SIZE_COUNT], const ht_json* config, ht_error* err);

/*
 * general.architecture, general.type and the "<arch>.*" keys of the family, rope scaling and sliding window included. `sizes` are complete.
 *   out_rope_factors   sizes[HT_SIZE_HEAD] / 2 divisors of the rope frequencies (llama3 scaling), malloc'd; NULL when there are none
 * Errors: FORMAT, UNSUPPORTED naming key and value, NOMEM.
 */
ht_status ht_config_import(ht_meta* meta, float** out_rope_factors, const ht_json* config, const ht_arch* arch, const int64_t sizes[HT_SIZE_COUNT],
                           ht_error* err);

/*
 * general.sampling.* keys from generation_config.json, when the folder has one; values of a wrong kind are logged and ignored.
 * Errors: those of ht_json_read, NOMEM.
 */
ht_status ht_generation_config_import(ht_meta* meta, const char* folder, const ht_log* log, ht_error* err);

/* Rope keys and factors, and the sliding window: parts of ht_config_import (rope_import.c). */
ht_status ht_rope_import(ht_meta* meta, float** out_factors, const ht_json* config, const ht_arch* arch, const int64_t sizes[HT_SIZE_COUNT],
                         ht_error* err);
ht_status ht_window_import(ht_meta* meta, const ht_json* config, const ht_arch* arch, const int64_t sizes[HT_SIZE_COUNT], ht_error* err);

/* "135M", "8.0B": a parameter count as in model names, two digits at least. Source: gguf-py utility.size_label. */
char* ht_size_label(int64_t n_params, char* buf, size_t n_buf);

#ifdef __cplusplus
}
#endif
#endif
