/*
 * A tile of rows: 16 rows of a matrix side by side, element-major, one lane per row, so that every step of GPTQ and descent handles 16 rows at once.
 *
 *              row 0  row 1 … row 15
 *    w[0]        .      .       .          arrays of columns (n), groups (n / group) or super-blocks (n / 256), 16 floats each
 *    w[1]        .      .       .
 *
 * The kernels of quant/kernels/<isa>/gptq_<isa>.c are one source (gptq_body.h) compiled per instruction set; they are called through
 * ht_gptq_kernels. Lanes never mix, and what is fused is fused in all of them, so they give the same bits.
 */
#ifndef HT_QUANT_GPTQ_TILE_H
#define HT_QUANT_GPTQ_TILE_H

#include <stdint.h>

#include "quant/block_parts.h"

enum { ROW_TILE = 16 };

/* A tile rounded: q = s * level + m. */
typedef struct ht_tile_state {
    float* level; /* per column                                                */
    float* s;     /* per group: scale and minimum as they count                */
    float* m;
    float* sc;    /* per group, K types: whole scale and minimum               */
    float* mn;
    float* d;     /* per super-block, K types: d and dmin; not changed here    */
    float* dmin;
} ht_tile_state;

/* What a Hessian gives to the kernels for one group size. */
typedef struct ht_group_blocks {
    float* h;       /* (n / g, g, g) diagonal blocks of the damped Hessian      */
    float* inverse; /* their inverses                                           */
    float* u;       /* upper factors: u^T u = inverse                           */
} ht_group_blocks;

typedef struct ht_tile_problem {
    const ht_block_format* format;
    int64_t                n;
    const float*           hessian;   /* (n, n), undamped                                               */
    const float*           ut;        /* (n, n): ut[t * n + k] = U[k][t], U^T U = inverse of the damped */
    const float*           diagonal;  /* n, of the damped Hessian                                       */
    float                  keep;      /* 1 - shrink: what off-diagonal elements are multiplied with     */
    ht_group_blocks        blocks;    /* for the format's group size                                    */
} ht_tile_problem;

typedef struct ht_gptq_kernels {
    /* y[t] += sum over k < n_k of matrix[t * stride + k] * d[k], for n_t columns t */
    void (*add_product)(float* y, const float* matrix, int64_t stride, const float* d, int64_t n_t, int64_t n_k);
    /* Error feedback under the scales of `state`: sets its levels. `w` is used up; `e` is scratch of 32 columns. */
    void (*feed_back)(const ht_tile_problem* p, float* w, float* e, ht_tile_state* state);
    /* One sweep of descent. `g` = (W - Q) H_damped, kept up to date; `change` is scratch of 32 columns. */
    void (*descend)(const ht_tile_problem* p, float* g, float* change, ht_tile_state* state);
} ht_gptq_kernels;

/* The best that need only `cpu_features`. */
const ht_gptq_kernels* ht_gptq_kernels_get(uint32_t cpu_features);

#endif
