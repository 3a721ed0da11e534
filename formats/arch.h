/*
 * THE model-family table: what a Hugging Face checkpoint of a family holds, under which names and keys a GGUF has it, and what changes on the way.
 *
 * A family is one const ht_arch in arch_<name>.c and one row in arch.c. Everything in it is data:
 *   keys      configuration members -> metadata keys
 *   tensors   names, shapes and transforms, in the order in which they are written; rows with "%d" are repeated for every layer, as a run
 *   dropped   name endings of tensors that carry nothing (tables that a runtime computes)
 * The rules that all families share (head_dim, rope scaling, sliding windows, tied embeddings) are in config_import.c, rope_import.c and
 * source_hf.c. Names and keys: facts "convert.md" sections 3.2, 4, 5.1; gguf-py tensor_mapping.py.
 */
#ifndef HT_FORMATS_ARCH_H
#define HT_FORMATS_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes of a model: shapes and integer keys are made of them. */
typedef enum ht_size {
    HT_SIZE_NONE = 0,
    HT_SIZE_LAYERS,
    HT_SIZE_CONTEXT,
    HT_SIZE_VOCAB,    /* rows of the embedding: the tensor decides, not the configuration */
    HT_SIZE_EMBD,
    HT_SIZE_FF,
    HT_SIZE_HEADS,
    HT_SIZE_HEADS_KV,
    HT_SIZE_HEAD,     /* values per head: head_dim, else EMBD / HEADS                      */
    HT_SIZE_Q,        /* HEADS * HEAD                                                      */
    HT_SIZE_KV,       /* HEADS_KV * HEAD                                                   */
    HT_SIZE_COUNT
} ht_size;

/* One metadata key, written as "<arch>.<key>". */
typedef struct ht_arch_key {
    const char* key;
    ht_size     size;     /* a u32 of this size, written only if the configuration has member hf[0] (NULL: always);  */
    const char* hf[3];    /* or, for HT_SIZE_NONE, an f32: the first of these members that is there                  */
    bool        required; /* an absent member is an error                                                            */
} ht_arch_key;

/*
 * How rows get from one to the other. HF applies rope to pairs (j, j + d/2) of a head, ggml's NORM mode to pairs (2j, 2j+1): for families that
 * use it the rows (elements of a bias) of every head are interleaved, out[2j + s] = in[s * d/2 + j]. q and k differ in the number of heads.
 */
typedef enum ht_row_order { HT_ROW_ORDER_AS_IS = 0, HT_ROW_ORDER_ROPE_Q, HT_ROW_ORDER_ROPE_K } ht_row_order;

typedef struct ht_arch_tensor {
    const char*  hf;         /* "model.layers.%d.self_attn.q_proj.weight"           */
    const char*  gguf;       /* "blk.%d.attn_q.weight"                              */
    ht_size      rows, cols; /* HF shape [rows, cols]; cols NONE: a vector          */
    ht_row_order order;
    bool         optional;
} ht_arch_tensor;

typedef struct ht_arch {
    const char*           name;        /* general.architecture: "llama"                                       */
    const char* const*    classes;     /* of config.json "architectures"; NULL-terminated                     */
    const char* const*    model_types; /* of config.json "model_type", when there is no class; NULL-terminated */
    const ht_arch_key*    keys;        /* beside those of all families; ended by a NULL key; NULL: none        */
    const ht_arch_tensor* tensors;     /* ended by a NULL hf                                                  */
    const char* const*    dropped;     /* name endings, beside the common ones; NULL-terminated; NULL: none   */
    bool                  window_off;  /* "sliding_window" counts only when "use_sliding_window" says so      */
} ht_arch;

/* NULL when no family has it. */
const ht_arch* ht_arch_find_class(const char* class_name);
const ht_arch* ht_arch_find_model_type(const char* model_type);

/* "LlamaForCausalLM, MistralForCausalLM, …" for messages. Returns `buf`. */
char* ht_arch_list_classes(char* buf, uint64_t n_buf);

/* The keys that every family has; ended by a NULL key. */
extern const ht_arch_key ht_arch_common_keys[];

/* Name endings that no family needs; NULL-terminated. */
extern const char* const ht_arch_common_dropped[];

extern const ht_arch ht_arch_llama, ht_arch_qwen2, ht_arch_qwen3;

#ifdef __cplusplus
}
#endif
#endif
