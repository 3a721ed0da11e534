#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/checked.h"
#include "formats/base/name_map.h"
#include "formats/gguf.h"

/* A growing header. The first failed allocation sticks: it is looked at once, at the end. */
typedef struct header {
    char*  data;
    size_t n, capacity;
    bool   failed;
} header;

static void put_bytes(header* h, const void* data, size_t n_bytes)
{
    if (h->failed) { return; }
    if (h->n + n_bytes > h->capacity) {
        const size_t capacity = (h->n + n_bytes) * 2;
        char*        grown    = realloc(h->data, capacity);
        if (!grown) {
            h->failed = true;
            return;
        }
        h->data     = grown;
        h->capacity = capacity;
    }
    if (n_bytes > 0) { memcpy(h->data + h->n, data, n_bytes); }
    h->n += n_bytes;
}

static void put_u32(header* h, uint32_t value) { put_bytes(h, &value, sizeof value); }
static void put_u64(header* h, uint64_t value) { put_bytes(h, &value, sizeof value); }

static void put_string(header* h, const char* data, size_t n_bytes)
{
    put_u64(h, n_bytes);
    put_bytes(h, data, n_bytes);
}

static void put_pair(header* h, const ht_meta_kv* kv)
{
    put_string(h, kv->key, strlen(kv->key));
    if (kv->is_array) {
        put_u32(h, HT_META_TYPE_ARRAY);
        put_u32(h, kv->type);
        put_u64(h, kv->n_values);
    } else {
        put_u32(h, kv->type);
    }
    if (!kv->strings) { put_bytes(h, kv->data, ht_meta_type_bytes(kv->type) * (size_t)kv->n_values); }
    for (uint64_t i = 0; kv->strings && i < kv->n_values; i++) { put_string(h, kv->strings[i].data, kv->strings[i].n_bytes); }
}

static void put_tensor(header* h, const ht_tensor_info* t)
{
    put_string(h, t->name, strlen(t->name));
    put_u32(h, (uint32_t)t->n_dims);
    for (int d = 0; d < t->n_dims; d++) { put_u64(h, (uint64_t)t->ne[d]); }
    put_u32(h, (uint32_t)t->type);
    put_u64(h, t->offset_bytes);
}

static bool pad(uint64_t* n, uint64_t alignment)
{
    if (!ht_add_u64(*n, alignment - 1, n)) { return false; }
    *n -= *n % alignment;
    return true;
}

static ht_status place_tensors(ht_tensor_info* tensors, int64_t n_tensors, uint64_t alignment, uint64_t* out_n_data, ht_error* err)
{
    ht_status    st     = HT_STATUS_OK;
    uint64_t     offset = 0;
    const char*  name   = NULL;
    ht_name_map* seen   = ht_name_map_create();
    HT_CHECK(seen, NOMEM, "names of tensors");
    for (int64_t i = 0; i < n_tensors; i++) {
        const size_t n_name = strnlen(tensors[i].name, sizeof tensors[i].name);
        const char*  fault  = ht_tensor_name_fault(tensors[i].name, n_name);
        name                = n_name <= HT_GGUF_MAX_NAME ? tensors[i].name : NULL; /* without its NUL it cannot be printed */
        HT_CHECK(!fault, ARG, "%s (entry %" PRId64 ")", fault, i);
        const int64_t index = ht_name_map_add(seen, name, strlen(name), i);
        HT_CHECK(index >= 0, NOMEM, "names of tensors");
        HT_CHECK(index == i, ARG, "a tensor of this name was added already");
        HT_TRY(ht_tensor_info_size(&tensors[i], err));
        tensors[i].offset_bytes = offset;
        HT_CHECK(ht_add_u64(offset, tensors[i].n_bytes, &offset) && pad(&offset, alignment), BOUNDS, "the file would be larger than 64 bits can say");
    }
    *out_n_data = offset;
done:
    if (st != HT_STATUS_OK && name) { ht_error_set_tensor(err, name); }
    ht_name_map_free(seen);
    return st;
}

ht_status ht_gguf_layout(const ht_meta* meta, ht_tensor_info* tensors, int64_t n_tensors, void** out_header, size_t* out_n_header,
                         uint64_t* out_n_file, ht_error* err)
{
    static const char zeros[64];
    ht_status st        = HT_STATUS_OK;
    header    h         = { 0 };
    uint64_t  alignment = HT_GGUF_DEFAULT_ALIGNMENT;
    uint64_t  n_data = 0, n_header = 0, n_file = 0;
    HT_TRY(ht_gguf_alignment(meta, &alignment, err));
    HT_TRY(place_tensors(tensors, n_tensors, alignment, &n_data, err));
    put_bytes(&h, "GGUF", 4);
    put_u32(&h, 3);
    put_u64(&h, (uint64_t)n_tensors);
    put_u64(&h, (uint64_t)ht_meta_count(meta));
    for (int64_t i = 0; i < ht_meta_count(meta); i++) { put_pair(&h, ht_meta_at(meta, i)); }
    for (int64_t i = 0; i < n_tensors; i++) { put_tensor(&h, &tensors[i]); }
    n_header = h.n;
    HT_CHECK(pad(&n_header, alignment) && ht_add_u64(n_header, n_data, &n_file), BOUNDS, "the file would be larger than 64 bits can say");
    while (!h.failed && h.n < n_header) { put_bytes(&h, zeros, n_header - h.n < sizeof zeros ? (size_t)(n_header - h.n) : sizeof zeros); }
    HT_CHECK(!h.failed, NOMEM, "GGUF header");
    *out_header   = h.data;
    *out_n_header = h.n;
    *out_n_file   = n_file;
    h.data        = NULL;
done:
    free(h.data);
    return st;
}
