#include "formats/decode.h"

ht_decode_row_fn ht_decode_row_get(ht_type type)
{
    static const ht_decode_row_fn table[HT_TYPE_END] = {
#define HT_TYPE_RAW(stem, id, name, elems, bytes) [id] = ht_##stem##_decode_row_ref,
#define HT_TYPE_HALF(stem, id, name, elems, bytes) [id] = ht_##stem##_decode_row_ref,
#define HT_TYPE_READ(stem, id, name, elems, bytes) [id] = ht_##stem##_decode_row_ref,
#define HT_TYPE_CODEC(stem, id, name, elems, bytes, dot, fallback, rel_rmse_max) [id] = ht_##stem##_decode_row_ref,
#include "formats/types.def"
    };
    return table[type];
}
