/*
 * From a wish for a mix of types (of Q4_K_M's size, of so many bits, from a recipe file) to the types of every tensor.
 */
#ifndef HT_QUANT_MIX_PLAN_H
#define HT_QUANT_MIX_PLAN_H

#include "quant/plan.h"
#include "quant/sensitivity.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_mix_request {
    const char* const* recipes;       /* n_recipes as given: "Q4_K_M", "Q4_K_M+" …                */
    int                n_recipes;
    double             target_bpw;    /* 0: none; of all tensor data                              */
    uint64_t           target_bytes;  /* 0: none; of the file                                     */
    const char*        recipe_path;   /* or NULL                                                  */
    bool               prefer_fast;
} ht_mix_request;

/* Per recipe its types (NULL: the recipe's own), and what the choice was based on. */
typedef struct ht_mix_plan {
    int             n_recipes;
    int64_t         n_tensors;
    ht_type**       types;       /* n_recipes; each NULL or n_tensors                             */
    char**          names;       /* "Q4_K_M+"                                                     */
    double*         estimate;    /* estimated KL divergence of importance rounding                */
    double*         estimate_base; /* of the plain recipe of the same size, where there is one    */
    double*         estimate_any;  /* with prefer_fast: of the mix that may use slow types too    */
    ht_mix_item*    items;       /* n_tensors, or NULL                                            */
} ht_mix_plan;

/* Whether anything but plain recipes is asked for. */
bool ht_mix_is_wanted(const ht_mix_request* request);

/* "Q4_K_M+" -> the recipe Q4_K_M; NULL for names without '+' or unknown ones. */
const ht_recipe* ht_mix_base_recipe(const char* name);

/*
 * Fills `out` and points options->mixes and mix_names at it (out must stay where it is). Estimates are made once for all mixes; what was chosen goes to ctx->log.
 * Errors: ARG a target below the smallest types; recipe files that name tensors the model does not have; those of ht_sensitivity_table.
 */
ht_status ht_mix_plan_init(ht_mix_plan* out, const ht_mix_request* request, const ht_source* source, ht_plan_options* options, const ht_ctx* ctx, ht_error* err);
void      ht_mix_plan_deinit(ht_mix_plan* plan);

/* The first mix as a recipe file. Errors: ARG no mix; IO. */
ht_status ht_mix_plan_write(const ht_mix_plan* plan, const ht_source* source, const char* path, bool force, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
