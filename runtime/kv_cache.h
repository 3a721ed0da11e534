/*
 * Keys and values of the positions seen so far, per layer and kv head, in the layout that attention reads (kernels/graph_ops.h):
 *
 *   keys    (n_layers, n_heads_kv, capacity / 16, head_dim, 16)     sixteen neighbouring positions interleaved
 *   values  (n_layers, n_heads_kv, capacity, head_dim_v padded to 16)
 *
 * capacity is n_ctx rounded up to 64. The memory is taken as zeros, so untouched pages cost nothing yet.
 */
#ifndef HT_RUNTIME_KV_CACHE_H
#define HT_RUNTIME_KV_CACHE_H

#include "runtime/kernels/graph_ops.h"
#include "runtime/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_kv_cache {
    ht_kv_type type;
    int64_t    n_ctx, capacity, n_heads_kv, head_dim, head_dim_v, head_dim_v_padded;
    size_t     elem_bytes;
    uint64_t   n_bytes;
    void*      keys;
    void*      values;
} ht_kv_cache;

/* Errors: NOMEM (the bytes are named), BOUNDS. Free with ht_kv_cache_deinit. */
ht_status ht_kv_cache_init(ht_kv_cache* cache, const ht_hparams* hparams, int64_t n_ctx, ht_kv_type type, ht_error* err);
void      ht_kv_cache_deinit(ht_kv_cache* cache);

/* Store key (head_dim) and value (head_dim_v) of one position. Thread-safe for distinct (head, position). */
void ht_kv_cache_put(ht_kv_cache* cache, int64_t layer, int64_t head, int64_t position, const float* key, const float* value);

/* Point the k, v and shape fields of `attend` at one layer and head. */
void ht_kv_cache_view(const ht_kv_cache* cache, int64_t layer, int64_t head, ht_attend* attend);

#ifdef __cplusplus
}
#endif
#endif
