/*
 * One layer in f32, forwards and backwards: the graph of runtime/graph.c with its derivative written out by hand. One call handles one chunk of tokens that
 * starts at position 0, on the calling thread; distinct spaces may be used by distinct threads.
 *
 *   h1 = norm(x)       q, k, v = W h1 (+ b), [norm of heads], rope       a = attend(q, k, v)      x2 = x + W_o a
 *   h2 = norm(x2)      f = silu(W_gate h2) * (W_up h2)                                             y  = x2 + W_down f
 */
#ifndef HT_CALIB_LAYER_H
#define HT_CALIB_LAYER_H

#include "formats/source.h"
#include "runtime/family.h"
#include "runtime/kernels/graph_ops.h"
#include "runtime/model.h"
#include "runtime/rope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The linears of a layer. */
typedef enum ht_linear_id { HT_LINEAR_Q, HT_LINEAR_K, HT_LINEAR_V, HT_LINEAR_O, HT_LINEAR_GATE, HT_LINEAR_UP, HT_LINEAR_DOWN, HT_LINEAR_COUNT } ht_linear_id;

typedef struct ht_layer_linear {
    char    name[HT_GGUF_MAX_NAME + 1]; /* "blk.3.attn_q.weight"       */
    int64_t n_rows, n_cols;
    float*  w;                          /* (n_rows, n_cols)            */
    float*  bias;                       /* n_rows, or NULL             */
} ht_layer_linear;

typedef struct ht_layer_f32 {
    const ht_hparams*   hparams;
    const ht_graph_ops* ops;
    const ht_rope*      rope;
    int64_t             window;           /* positions that a query sees; 0: all */
    float *             attn_norm, *ffn_norm, *q_norm, *k_norm; /* the last two may be NULL */
    ht_layer_linear     linears[HT_LINEAR_COUNT];
} ht_layer_f32;

/* Names and shapes of layer `index` without reading; then its weights. Errors: FORMAT missing or misshapen tensors; IO; NUMERIC; NOMEM. */
void      ht_layer_describe(ht_layer_f32* layer, const ht_hparams* hparams, int64_t index);
ht_status ht_layer_read(ht_layer_f32* layer, const ht_source* source, int64_t index, int n_threads, ht_error* err);
void      ht_layer_deinit(ht_layer_f32* layer);

/* What one chunk of n tokens goes through; (n, width) row-major. The inputs of the linears are given by the caller, the rest is one block. */
typedef struct ht_layer_space {
    int64_t n;
    float * h1, *a, *h2, *f;               /* inputs of q k v; of o; of gate and up; of down: set by the caller         */
    float * q0, *k0, *q, *k, *v;           /* before and after norm and rope; q is scaled                               */
    float * x2, *gate, *up;
    float * dq, *dk, *dv, *da, *dx2, *dgate, *dup, *df, *dh; /* output gradients of the linears q, k, v, o (dx2), gate, up        */
    float * scores, *dscores;              /* (n, n)                                                                     */
    float*  tables;                        /* (n, n_rot) rope                                                            */
    float*  block;
} ht_layer_space;

ht_status ht_layer_space_init(ht_layer_space* space, const ht_hparams* hparams, const ht_rope* rope, int64_t n, ht_error* err);
void      ht_layer_space_deinit(ht_layer_space* space);

/* y (n, n_embd) of x; y may not be x. Fills the space. */
void ht_layer_forward(const ht_layer_f32* layer, ht_layer_space* space, const float* x, float* y);

/* After ht_layer_forward on the same x: from dy the gradient dx of the input (may be dy). Afterwards ht_layer_output_gradient gives that of a linear. */
void         ht_layer_backward(const ht_layer_f32* layer, ht_layer_space* space, const float* x, const float* dy, float* dx);
const float* ht_layer_output_gradient(const ht_layer_space* space, ht_linear_id linear, const float* dy);
float*       ht_layer_input(const ht_layer_space* space, ht_linear_id linear);

/* row[i] = e^(row[i] - shift), for values that are not above shift by more than 88 */
void ht_exp_shifted(float* row, int64_t n, float shift);

/* dx += derivative of rms_norm at x for n tokens of width n_embd. */
void ht_rms_norm_backward(const float* x, const float* weight, float eps, int64_t n, int64_t width, const float* dy, float* dx);

#ifdef __cplusplus
}
#endif
#endif
