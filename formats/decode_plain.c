/* Plain numbers, one per "block": floats as they are, everything wider than f32 rounded to the nearest f32. */
#include <string.h>

#include "formats/base/half.h"
#include "formats/decode.h"

#define DECODE_ROW(stem, type, expression)                                                                   \
    void ht_##stem##_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)       \
    {                                                                                                        \
        const unsigned char* p = blocks;                                                                     \
        for (int64_t i = 0; i < n_elems; i++, p += sizeof(type)) {                                           \
            type v;                                                                                          \
            memcpy(&v, p, sizeof v);                                                                         \
            out[i] = (expression);                                                                           \
        }                                                                                                    \
    }

DECODE_ROW(f32, float, v)
DECODE_ROW(f64, double, (float)v)
DECODE_ROW(f16, uint16_t, ht_f16_to_f32(v))
DECODE_ROW(bf16, uint16_t, ht_bf16_to_f32(v))
DECODE_ROW(i8, int8_t, (float)v)
DECODE_ROW(i16, int16_t, (float)v)
DECODE_ROW(i32, int32_t, (float)v)
DECODE_ROW(i64, int64_t, (float)v)
