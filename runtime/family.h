/*
 * What the graph has to know about a model family. One row of the table in family.c per architecture; everything else about a family
 * (config keys, tensor names and transforms of checkpoints) is in formats/arch_<family>.c.
 */
#ifndef HT_RUNTIME_FAMILY_H
#define HT_RUNTIME_FAMILY_H

#include "formats/meta.h"
#include "runtime/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ht_presence { HT_PRESENCE_NEVER, HT_PRESENCE_OPTIONAL, HT_PRESENCE_ALWAYS } ht_presence;

typedef struct ht_family {
    const char* arch;        /* general.architecture                          */
    bool        rope_neox;   /* pairs (j, j + n_rot / 2), else (2 j, 2 j + 1) */
    ht_presence qkv_bias;
    ht_presence other_bias;  /* attn_output, ffn_gate, ffn_up, ffn_down       */
    ht_presence qk_norm;     /* RMS norm of each query and key head           */
} ht_family;

/* NULL when the runtime does not know the architecture. */
const ht_family* ht_family_find(const char* arch);

/* "llama, qwen2, qwen3": for messages. Returns buf. */
char* ht_family_list(char* buf, size_t n_buf);

/*
 * The numbers of {arch}.* keys, checked for sense; n_vocab is left 0 (the embedding tensor decides).
 * Errors: UNSUPPORTED architecture or a feature that the graph has not (experts); FORMAT missing key or impossible value.
 */
ht_status ht_hparams_read(ht_hparams* hparams, const ht_family** family, const ht_meta* meta, ht_error* err);

/*
 * Positions that a query of `layer` sees, 0: all. {arch}.attention.sliding_window_pattern tells which layers have the window; absent: all.
 * Errors: FORMAT a pattern of another length.
 */
ht_status ht_hparams_window(const ht_hparams* hparams, const ht_meta* meta, int64_t layer, int64_t* window, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
