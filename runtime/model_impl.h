/*
 * What a loaded model consists of. Only model.c (which fills it) and graph.c (which runs it) look inside.
 */
#ifndef HT_RUNTIME_MODEL_IMPL_H
#define HT_RUNTIME_MODEL_IMPL_H

#include "runtime/kernels/graph_ops.h"
#include "runtime/matmul.h"
#include "runtime/model.h"
#include "runtime/rope.h"

/* y = W x (+ bias). An absent linear has w.data NULL. */
typedef struct ht_linear {
    ht_matrix    w;
    const float* bias; /* n_rows, or NULL */
    char         name[HT_GGUF_MAX_NAME + 1];
} ht_linear;

typedef struct ht_layer {
    int64_t      window;         /* positions that a query sees; 0: all */
    const float* attn_norm;      /* n_embd                   */
    const float* attn_q_norm;    /* head_dim, or NULL        */
    const float* attn_k_norm;    /* head_dim, or NULL        */
    const float* ffn_norm;       /* n_embd                   */
    ht_linear    attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up, ffn_down;
} ht_layer;

struct ht_model {
    ht_hparams          hparams;
    ht_compute          compute;
    ht_kernels          kernels;
    const ht_graph_ops* ops;
    ht_rope             rope;
    ht_matrix           token_embd;   /* (n_vocab, n_embd)                               */
    const float*        output_norm;  /* n_embd                                          */
    ht_linear           output;       /* (n_vocab, n_embd); the rows of token_embd when tied */
    ht_layer*           layers;
    void*               weights;      /* one block that holds all of the above           */
    uint64_t            weights_bytes, bytes_per_token;
};

#endif
