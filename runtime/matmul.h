/*
 * Matrix times activations, on all threads: the one place where weights are read during a forward pass.
 */
#ifndef HT_RUNTIME_MATMUL_H
#define HT_RUNTIME_MATMUL_H

#include "runtime/kernels/kernels.h"
#include "runtime/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Weights in memory, (n_rows, n_cols) row-major in their own type. */
typedef struct ht_matrix {
    ht_type     type;
    int64_t     n_rows, n_cols; /* n_cols a multiple of the block */
    const void* data;           /* n_rows rows of row_bytes        */
    size_t      row_bytes;
} ht_matrix;

/* One product of a batch: y (n_tokens, w->n_rows) row-major f32, owned by the caller. */
typedef struct ht_matmul_job {
    const ht_matrix* w;
    float*           y;
} ht_matmul_job;

/* Scratch bytes that suffice for products of up to n_tokens rows of n_cols activations with weights of any type. */
size_t ht_matmul_scratch_bytes(int64_t n_cols, int64_t n_tokens, int n_threads);

/*
 * For every job: y[t][r] = sum over i of w[r][i] * x[t][i]. Jobs share x (query, key and value; gate and up), so that it is rounded once and all
 * rows are one pool of work; all have the same n_cols.
 *   compute   EXACT: weights decoded to f32, f32 activations. FAST: quantized weights meet activations rounded to 8 bits; floats are as EXACT.
 *   x         (n_tokens, n_cols) row-major f32
 *   scratch   64-byte aligned, ht_matmul_scratch_bytes(n_cols, n_tokens, n_threads) bytes
 * Rows go through in panels, every panel by one thread; results do not depend on n_threads, nor y[t] on the other tokens.
 */
void ht_matmul(const ht_kernels* kernels, ht_compute compute, const ht_matmul_job* jobs, int n_jobs, const float* x, int64_t n_tokens,
               void* scratch, int n_threads);

#ifdef __cplusplus
}
#endif
#endif
