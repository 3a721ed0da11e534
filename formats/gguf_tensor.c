/* Facts about one tensor that reading, writing and planning share. */
#include <inttypes.h>

#include "formats/base/checked.h"
#include "formats/gguf.h"

int64_t ht_tensor_n_rows(const ht_tensor_info* info) { return info->ne[1] * info->ne[2] * info->ne[3]; }
int64_t ht_tensor_n_elems(const ht_tensor_info* info) { return info->ne[0] * ht_tensor_n_rows(info); }

ht_status ht_tensor_info_size(ht_tensor_info* info, ht_error* err)
{
    ht_status st      = HT_STATUS_OK;
    size_t    n_row   = 0, n_bytes = 0;
    int64_t   n_rows  = 1, n_elems = 0;
    HT_CHECK(info->n_dims >= 1 && info->n_dims <= HT_GGUF_MAX_DIMS, FORMAT, "%d dimensions (1 to %d are possible)", info->n_dims,
             HT_GGUF_MAX_DIMS);
    for (int d = 0; d < HT_GGUF_MAX_DIMS; d++) {
        HT_CHECK(info->ne[d] >= 1, FORMAT, "dimension %d is %" PRId64 ": GGUF holds no empty tensors", d, info->ne[d]);
        HT_CHECK(d == 0 || ht_mul_i64(n_rows, info->ne[d], &n_rows), BOUNDS, "size overflow: the product of the dimensions leaves 64 bits");
    }
    HT_CHECK(ht_mul_i64(n_rows, info->ne[0], &n_elems), BOUNDS, "size overflow: the product of the dimensions leaves 64 bits");
    HT_TRY(ht_row_bytes(ht_type_get(info->type), info->ne[0], &n_row, err));
    HT_CHECK(ht_mul_size(n_row, (size_t)n_rows, &n_bytes) && n_bytes <= INT64_MAX, BOUNDS, "size overflow: the tensor's bytes leave 64 bits");
    info->n_bytes = n_bytes;
done:
    return st;
}
