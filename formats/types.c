#include "formats/types.h"

#include <inttypes.h>
#include <strings.h>

#include "formats/base/checked.h"

static const ht_type_info type_table[HT_TYPE_END] = {
#define HT_TYPE_RAW(stem, id, name, elems, bytes) \
    [id] = { HT_TYPE_##stem, name, #stem, elems, bytes, false, false, false, HT_TYPE_f32, HT_TYPE_##stem, 0.0f },
#define HT_TYPE_HALF(stem, id, name, elems, bytes) \
    [id] = { HT_TYPE_##stem, name, #stem, elems, bytes, true, true, false, HT_TYPE_f32, HT_TYPE_##stem, 0.0f },
#define HT_TYPE_READ(stem, id, name, elems, bytes) \
    [id] = { HT_TYPE_##stem, name, #stem, elems, bytes, false, false, true, HT_TYPE_f32, HT_TYPE_f16, 0.0f },
#define HT_TYPE_CODEC(stem, id, name, elems, bytes, dot, fallback, rel_rmse_max) \
    [id] = { HT_TYPE_##stem, name, #stem, elems, bytes, false, true, true, HT_TYPE_##dot, HT_TYPE_##fallback, rel_rmse_max },
#include "formats/types.def"
};

const ht_type_info* ht_type_get(uint32_t id)
{
    return id < HT_TYPE_END && type_table[id].name ? &type_table[id] : NULL;
}

const ht_type_info* ht_type_find(const char* name)
{
    for (uint32_t id = 0; id < HT_TYPE_END; id++) {
        const ht_type_info* info = &type_table[id];
        if (info->name && (strcasecmp(info->name, name) == 0 || strcasecmp(info->stem, name) == 0)) { return info; }
    }
    return NULL;
}

double ht_type_bits(const ht_type_info* info) { return 8.0 * info->block_bytes / info->block_elems; }

ht_status ht_row_bytes(const ht_type_info* info, int64_t n_elems, size_t* out, ht_error* err)
{
    if (n_elems < 0 || n_elems % info->block_elems != 0) {
        return ht_fail(err, HT_STATUS_ARG, "rows of %" PRId64 " elements do not fill %s blocks of %d", n_elems, info->name,
                       info->block_elems);
    }
    if (!ht_mul_size((size_t)(n_elems / info->block_elems), (size_t)info->block_bytes, out)) {
        return ht_fail(err, HT_STATUS_BOUNDS, "a row of %" PRId64 " elements of %s overflows", n_elems, info->name);
    }
    return HT_STATUS_OK;
}
