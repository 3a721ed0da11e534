/*
 * The hot loops of the runtime: products of weight rows with activation rows, and the rounding of activations. `select.c` lists every variant;
 * the scalar ones are the definition. All kernels are pure and thread-safe for distinct outputs.
 *
 * Promise of every variant: y[t][r] depends only on weight row r and activation row t, not on what else is in the panel. So results depend neither
 * on the thread count nor on how many tokens go through at once. Integer sums are the same for all instruction sets; float sums may differ in order.
 */
#ifndef HT_RUNTIME_KERNELS_H
#define HT_RUNTIME_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/cpu.h"
#include "formats/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A few weight rows times a few activation rows: y[t * y_stride + r] = sum over i of w_r[i] * a_t[i].
 *   w  n_rows rows of n_cols weights of the kernel's type, w_stride bytes apart, any alignment
 *   a  n_tokens activation rows, a_stride bytes apart, in the form that ht_kernels_act_type says: f32 (any float alignment) or rounded
 *      rows as in activations.h (64-byte aligned)
 *   y  f32, y_stride values from token to token
 * n_cols is a multiple of the block of the type; zero rows or tokens are nothing.
 */
typedef struct ht_panel {
    const void* w;
    size_t      w_stride;
    const void* a;
    size_t      a_stride;
    float*      y;
    int64_t     y_stride;
    int64_t     n_rows, n_tokens, n_cols;
} ht_panel;

typedef void (*ht_dot_fn)(const ht_panel* panel);

/* Round n_cols f32 to a row of activations.h at `row` (64-byte aligned, ht_act_row_bytes bytes). */
typedef void (*ht_round_fn)(const float* restrict x, void* restrict row, int64_t n_cols);

typedef enum ht_op { HT_OP_DOT, HT_OP_ROUND } ht_op;

/* One variant. `type` is the weight type of a DOT, the target of a ROUND. */
typedef struct ht_kernel {
    ht_op       op;
    ht_type     type;
    ht_isa      isa;
    uint32_t    needs; /* ht_cpu_feature bits  */
    ht_dot_fn   dot;   /* NULL for a ROUND     */
    ht_round_fn round; /* NULL for a DOT       */
} ht_kernel;

/* All variants, for tests and `halftone cpu`; for each (op, type) the best comes first and the scalar one last. */
const ht_kernel* ht_kernels_table(size_t* n);

/* The choice for a set of CPU features. */
typedef struct ht_kernels {
    const ht_kernel* dot[HT_TYPE_END];   /* NULL for types that have no kernel: decode their rows and use f32 */
    const ht_kernel* round[HT_TYPE_END]; /* q8_0 and q8_k                                                      */
} ht_kernels;

/* `cpu_features`: what the CPU has and the user allows, ht_cpu_features() & ht_isa_features(ctx->isa). */
void ht_kernels_select(ht_kernels* out, uint32_t cpu_features);

/* What a weight type is multiplied with: its `dot` column for quantized types, f32 for floats. */
static inline ht_type ht_kernels_act_type(ht_type weights) { return ht_type_get((uint32_t)weights)->dot; }

#ifdef __cplusplus
}
#endif
#endif
