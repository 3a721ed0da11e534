/* What reading, writing and planning share: sizes, names, alignment. */
#include <inttypes.h>
#include <string.h>
#include <utf8proc.h>

#include "formats/base/checked.h"
#include "formats/gguf.h"

int64_t ht_tensor_n_rows(const ht_tensor_info* info) { return info->ne[1] * info->ne[2] * info->ne[3]; }
int64_t ht_tensor_n_elems(const ht_tensor_info* info) { return info->ne[0] * ht_tensor_n_rows(info); }

ht_status ht_tensor_info_size(ht_tensor_info* info, ht_error* err)
{
    ht_status st      = HT_STATUS_OK;
    size_t    n_row   = 0, n_bytes = 0;
    int64_t   n_rows  = 1, n_elems = 0;
    HT_CHECK(info->n_dims >= 1 && info->n_dims <= HT_GGUF_MAX_DIMS, ARG, "%d dimensions (1 to %d are possible)", info->n_dims,
             HT_GGUF_MAX_DIMS);
    for (int d = 0; d < HT_GGUF_MAX_DIMS; d++) {
        HT_CHECK(info->ne[d] >= 1, ARG, "dimension %d is %" PRId64 ": GGUF holds no empty tensors", d, info->ne[d]);
        HT_CHECK(d < info->n_dims || info->ne[d] == 1, ARG, "dimension %d is %" PRId64 ", but there are %d", d, info->ne[d], info->n_dims);
        HT_CHECK(d == 0 || ht_mul_i64(n_rows, info->ne[d], &n_rows), BOUNDS, "size overflow: the product of the dimensions leaves 64 bits");
    }
    HT_CHECK(ht_mul_i64(n_rows, info->ne[0], &n_elems), BOUNDS, "size overflow: the product of the dimensions leaves 64 bits");
    HT_TRY(ht_row_bytes(ht_type_get(info->type), info->ne[0], &n_row, err));
    HT_CHECK(ht_mul_size(n_row, (size_t)n_rows, &n_bytes) && n_bytes <= INT64_MAX, BOUNDS, "size overflow: the tensor's bytes leave 64 bits");
    info->n_bytes = n_bytes;
done:
    return st;
}

static bool is_utf8(const char* text, size_t n_bytes)
{
    size_t at = 0;
    while (at < n_bytes) {
        utf8proc_int32_t       code = 0;
        const utf8proc_ssize_t n    = utf8proc_iterate((const utf8proc_uint8_t*)text + at, (utf8proc_ssize_t)(n_bytes - at), &code);
        if (n <= 0) { return false; }
        at += (size_t)n;
    }
    return true;
}

const char* ht_tensor_name_fault(const char* name, size_t n_bytes)
{
    if (n_bytes == 0) { return "a tensor has no name"; }
    if (n_bytes > HT_GGUF_MAX_NAME) { return "a tensor name is longer than 63 bytes"; }
    if (memchr(name, '\0', n_bytes)) { return "a tensor name holds a NUL byte"; }
    return is_utf8(name, n_bytes) ? NULL : "a tensor name is not UTF-8";
}

ht_status ht_gguf_alignment(const ht_meta* meta, uint64_t* out, ht_error* err)
{
    const ht_meta_kv* kv    = ht_meta_find(meta, "general.alignment");
    uint32_t          value = HT_GGUF_DEFAULT_ALIGNMENT;
    ht_status         st    = HT_STATUS_OK;
    if (kv) {
        HT_CHECK(kv->type == HT_META_TYPE_U32 && !kv->is_array, FORMAT, "general.alignment: expected u32, found %s%s",
                 ht_meta_type_name(kv->type), kv->is_array ? " array" : "");
        memcpy(&value, kv->data, sizeof value);
        HT_CHECK(value > 0 && (value & (value - 1)) == 0, FORMAT, "general.alignment: %" PRIu32 " is not a power of two", value);
        HT_CHECK(value <= HT_GGUF_MAX_ALIGNMENT, FORMAT, "general.alignment: %" PRIu32 " is over the limit of %d", value, HT_GGUF_MAX_ALIGNMENT);
    }
    *out = value;
done:
    return st;
}
