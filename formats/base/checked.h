/* Arithmetic on numbers that came from a file: true on success, `*out` untouched when the result does not fit. */
#ifndef HT_BASE_CHECKED_H
#define HT_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HT_CHECKED_BINARY(name, type, builtin)                  \
    static inline bool name(type a, type b, type* out)          \
    {                                                           \
        type result;                                            \
        if (builtin(a, b, &result)) { return false; }           \
        *out = result;                                          \
        return true;                                            \
    }

HT_CHECKED_BINARY(ht_mul_size, size_t, __builtin_mul_overflow)
HT_CHECKED_BINARY(ht_add_size, size_t, __builtin_add_overflow)
HT_CHECKED_BINARY(ht_mul_i64, int64_t, __builtin_mul_overflow)
HT_CHECKED_BINARY(ht_add_i64, int64_t, __builtin_add_overflow)
HT_CHECKED_BINARY(ht_mul_u64, uint64_t, __builtin_mul_overflow)
HT_CHECKED_BINARY(ht_add_u64, uint64_t, __builtin_add_overflow)

#undef HT_CHECKED_BINARY
#endif
