/*
 * The arithmetic of the graph that is not a matrix product: normalisation, activation, attention, and the sums behind log-probabilities.
 *
 * One body (graph_ops_body.h) is compiled once per instruction set. Multiplications and additions are never fused and every sum runs in 16 lanes
 * folded in a fixed order, so all variants give the same bits.
 */
#ifndef HT_RUNTIME_KERNELS_GRAPH_OPS_H
#define HT_RUNTIME_KERNELS_GRAPH_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HT_ATTEND_LANES = 16, /* keys that lie side by side in the K cache                 */
    HT_ATTEND_KEYS  = 64  /* keys per step of the online softmax; caches hold a multiple */
};

/*
 * Attention of one kv head: `group` query heads share its keys and values.
 *   q    row of query t, head g at q + t * q_stride + g * head_dim; scaled by 1 / sqrt(head_dim) already
 *   k    (n_keys / 16, head_dim, 16): sixteen neighbouring keys interleaved, so that a vector holds one dimension of sixteen keys
 *   v    (n_keys, head_dim_v_padded), the padding to a multiple of 16 being zero
 *   out  row of query t, head g at out + t * out_stride + g * head_dim_v
 * Query t stands at position n_past + t and sees the keys at positions (position - window, position]; window 0 means all of the past.
 */
typedef struct ht_attend {
    const float* q;
    float*       out;
    const void*  k;
    const void*  v;
    bool         is_f16;        /* element type of k and v: f16, else f32 */
    int64_t      q_stride, out_stride, n_past, window;
    int64_t      group, head_dim, head_dim_v, head_dim_v_padded;
} ht_attend;

/* f32 values of scratch that `attend` needs for n_queries queries. */
size_t ht_attend_scratch(const ht_attend* attend, int64_t n_queries);

typedef struct ht_graph_ops {
    const char* isa;
    uint32_t    needs; /* ht_cpu_feature mask */

    /* y = x / sqrt(mean(x^2) + eps) * weight; y may be x */
    void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y);

    /* gate = gate / (1 + exp(-gate)) * up */
    void (*silu_mul)(float* gate, const float* up, int64_t n);

    /* Queries [from, to) of `attend`, all heads of the group. */
    void (*attend)(const ht_attend* attend, int64_t from, int64_t to, float* scratch);

    /* max x, and log sum exp(x - max); NaN or Inf in x gives a non-finite sum. */
    void (*log_sum_exp)(const float* x, int64_t n, float* max, double* log_sum);

    /* With p = exp(base - max_base): sum p, and sum p * ((base - other) - shift). */
    void (*kl_sums)(const float* base, const float* other, int64_t n, float max_base, float shift, double* sum_p, double* sum_pd);
} ht_graph_ops;

/* The best variant among those that need only `cpu_features`. Never NULL. */
const ht_graph_ops* ht_graph_ops_get(uint32_t cpu_features);

/* The variants of this build, best first, for the tests; ends with NULL. */
extern const ht_graph_ops* const ht_graph_ops_all[];

#ifdef __cplusplus
}
#endif
#endif
