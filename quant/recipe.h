/*
 * Recipes: which tensor gets which type when a file is asked for as "Q4_K_M". The rules are those of llama-quantize, so that a recipe of
 * the same name has the same size; they live in one table in recipe.c (facts: llama.cpp src/llama-quant.cpp, read 2026-07).
 */
#ifndef HT_QUANT_RECIPE_H
#define HT_QUANT_RECIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/gguf.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_recipe ht_recipe;

/* What the rules look at besides the tensor itself. */
typedef struct ht_recipe_model {
    const char* arch;            /* general.architecture                                 */
    int64_t     n_layers;        /* block_count                                          */
    int64_t     n_heads, n_heads_kv;
    int64_t     n_experts;       /* 0: dense                                             */
    bool        is_tied;         /* no output.weight: the embedding follows its rule     */
    bool        has_importance;  /* activation statistics are at hand                    */
} ht_recipe_model;

/* By name, case-insensitive: "Q4_K_M", "IQ4_XS", "F16" …; "Q4_K" means Q4_K_M as in llama-quantize. NULL when unknown. */
const ht_recipe* ht_recipe_find(const char* name);
const ht_recipe* ht_recipe_at(int index);                 /* NULL past the end                                     */
const char*      ht_recipe_name(const ht_recipe* recipe);
uint32_t         ht_recipe_file_type(const ht_recipe* recipe);   /* general.file_type                              */
ht_type          ht_recipe_default_type(const ht_recipe* recipe);

/* Up to three known names close to `name`, as "Q5_K_S, Q5_K_M": for messages. Returns buf. */
char* ht_recipe_suggest(const char* name, char* buf, size_t n_buf);

/* Fill the model facts from metadata and tensor names. Absent keys leave zeros: the rules that need them do not apply. */
void ht_recipe_model_init(ht_recipe_model* model, const ht_meta* meta, const ht_tensor_info* tensors, int64_t n_tensors,
                          bool has_importance);

/* Whether llama.cpp and Halftone ever quantize a tensor of this name and shape. */
bool ht_tensor_is_quantizable(const ht_tensor_info* tensor);

/*
 * The type of every tensor under a recipe, before fallbacks: types[i] for tensors[i]; those never quantized keep their own,
 * except that floats of one dimension become F32.
 * The rules count tensors of a kind in the order (layer, name), whatever the order of `tensors`.
 * Errors: NOMEM.
 */
ht_status ht_recipe_assign(const ht_recipe* recipe, const ht_recipe_model* model, const ht_tensor_info* tensors, int64_t n_tensors,
                           ht_type* types, ht_error* err);

/* Follow the fallback column until the row length fills whole blocks. */
ht_type ht_type_for_row(ht_type wanted, int64_t n_elems);

#ifdef __cplusplus
}
#endif
#endif
