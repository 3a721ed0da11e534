#include "runtime/kv_cache.h"

#include <inttypes.h>
#include <stdlib.h>

#include "formats/base/checked.h"
#include "formats/base/half.h"

static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

ht_status ht_kv_cache_init(ht_kv_cache* cache, const ht_hparams* hparams, int64_t n_ctx, ht_kv_type type, ht_error* err)
{
    ht_status   st = HT_STATUS_OK;
    int64_t     n_keys, n_values;
    ht_kv_cache c = { .type = type, .n_ctx = n_ctx, .n_heads_kv = hparams->n_heads_kv, .head_dim = hparams->head_dim,
                      .head_dim_v = hparams->head_dim_v, .elem_bytes = type == HT_KV_TYPE_F16 ? 2 : 4 };
    HT_CHECK(n_ctx > 0 && n_ctx <= INT32_MAX, ARG, "a context of %" PRId64 " positions", n_ctx);
    c.capacity          = round_up(n_ctx, HT_ATTEND_KEYS);
    c.head_dim_v_padded = round_up(c.head_dim_v, HT_ATTEND_LANES);
    HT_CHECK(ht_mul_i64(c.capacity, hparams->n_layers * c.n_heads_kv, &n_keys) && ht_mul_i64(n_keys, c.head_dim_v_padded, &n_values) &&
                 ht_mul_i64(n_keys, c.head_dim, &n_keys) && n_keys < INT64_MAX / 16 && n_values < INT64_MAX / 16,
             BOUNDS, "a KV cache of %" PRId64 " positions", n_ctx);
    c.n_bytes = (uint64_t)(n_keys + n_values) * c.elem_bytes;
    c.keys    = calloc((size_t)n_keys, c.elem_bytes);
    c.values  = calloc((size_t)n_values, c.elem_bytes);
    HT_CHECK(c.keys && c.values, NOMEM, "KV cache of %" PRIu64 " bytes for %" PRId64 " positions", c.n_bytes, n_ctx);
    *cache   = c;
    c.keys   = NULL;
    c.values = NULL;
done:
    free(c.keys);
    free(c.values);
    return st;
}

void ht_kv_cache_deinit(ht_kv_cache* cache)
{
    free(cache->keys);
    free(cache->values);
    cache->keys   = NULL;
    cache->values = NULL;
}

/* Places of a head's first key and value, in elements. */
static int64_t key_base(const ht_kv_cache* c, int64_t layer, int64_t head) { return (layer * c->n_heads_kv + head) * c->capacity * c->head_dim; }
static int64_t value_base(const ht_kv_cache* c, int64_t layer, int64_t head)
{
    return (layer * c->n_heads_kv + head) * c->capacity * c->head_dim_v_padded;
}

void ht_kv_cache_put(ht_kv_cache* c, int64_t layer, int64_t head, int64_t position, const float* key, const float* value)
{
    const int64_t block = position / HT_ATTEND_LANES, lane = position % HT_ATTEND_LANES;
    const int64_t at_k = key_base(c, layer, head) + block * c->head_dim * HT_ATTEND_LANES + lane;
    const int64_t at_v = value_base(c, layer, head) + position * c->head_dim_v_padded;
    if (c->type == HT_KV_TYPE_F16) {
        uint16_t* k = (uint16_t*)c->keys + at_k;
        uint16_t* v = (uint16_t*)c->values + at_v;
        for (int64_t d = 0; d < c->head_dim; d++) { k[d * HT_ATTEND_LANES] = ht_f32_to_f16(key[d]); }
        for (int64_t d = 0; d < c->head_dim_v; d++) { v[d] = ht_f32_to_f16(value[d]); }
    } else {
        float* k = (float*)c->keys + at_k;
        float* v = (float*)c->values + at_v;
        for (int64_t d = 0; d < c->head_dim; d++) { k[d * HT_ATTEND_LANES] = key[d]; }
        for (int64_t d = 0; d < c->head_dim_v; d++) { v[d] = value[d]; }
    }
}

void ht_kv_cache_view(const ht_kv_cache* c, int64_t layer, int64_t head, ht_attend* attend)
{
    attend->k                 = (const char*)c->keys + (size_t)key_base(c, layer, head) * c->elem_bytes;
    attend->v                 = (const char*)c->values + (size_t)value_base(c, layer, head) * c->elem_bytes;
    attend->is_f16            = c->type == HT_KV_TYPE_F16;
    attend->head_dim          = c->head_dim;
    attend->head_dim_v        = c->head_dim_v;
    attend->head_dim_v_padded = c->head_dim_v_padded;
}
