/*
 * The mix: which type each tensor gets, so that the estimated KL divergence of the whole file is least under a budget of bytes.
 *
 * Pure arithmetic on a table of estimates (sensitivity.h makes it). A multiple-choice knapsack: Lagrangian relaxation by bisection, then the
 * bytes that are left are spent greedily by gain per byte. A tensor that is a large share of the file (an embedding) breaks the relaxation, so each of
 * its types is tried in turn and the rest is solved for each.
 */
#ifndef HT_QUANT_MIX_H
#define HT_QUANT_MIX_H

#include "formats/base/ctx.h"
#include "formats/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HT_MIX_CHOICES_MAX = 16 };

/* One tensor's choices. */
typedef struct ht_mix_item {
    const char* name;                          /* for messages                                                  */
    int         n_choices;
    ht_type     type[HT_MIX_CHOICES_MAX];
    uint64_t    n_bytes[HT_MIX_CHOICES_MAX];
    double      cost[HT_MIX_CHOICES_MAX];      /* estimated KL divergence, nats per token; finite               */
} ht_mix_item;

/*
 * choice[i] is an index into item i's choices. Deterministic; the sum of the bytes is at most `budget`. O(n log n) per trial: under a second
 * for ten thousand tensors.
 * Errors: ARG the smallest choices together exceed the budget (both numbers); NOMEM.
 */
ht_status ht_mix_solve(const ht_mix_item* items, int64_t n_items, uint64_t budget, int* choice, ht_error* err);

/* --- recipe files: a mix written out, to be used again with --recipe ------------------------------------------------------------------- */

/* {"schema": "halftone.recipe/1", "tensors": {"blk.0.attn_q.weight": "Q5_K", …}, …} */
typedef struct ht_recipe_file_row {
    const char*         name;  /* tensor */
    const ht_type_info* type;
} ht_recipe_file_row;

typedef struct ht_recipe_file ht_recipe_file;

/* Errors: IO; FORMAT (not JSON, no "tensors", unknown type with the near names, duplicate tensor). */
ht_status                 ht_recipe_file_open(ht_recipe_file** out, const char* path, ht_error* err);
void                      ht_recipe_file_close(ht_recipe_file* file);
int64_t                   ht_recipe_file_n_rows(const ht_recipe_file* file);
const ht_recipe_file_row* ht_recipe_file_at(const ht_recipe_file* file, int64_t index);

/* Written like every output: temporary file, fsync, rename. `notes`: JSON text of an object whose members are added at the top, or NULL. */
ht_status ht_recipe_file_write(const char* path, const ht_recipe_file_row* rows, int64_t n_rows, const char* notes, bool force, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
