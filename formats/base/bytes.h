/* Little-endian loads and stores at any alignment. Halftone runs on little-endian machines only (asserted below). */
#ifndef HT_BASE_BYTES_H
#define HT_BASE_BYTES_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Halftone reads and writes little-endian formats with plain copies: a big-endian port must swap here"
#endif

#define HT_LOAD_STORE(suffix, type)                                                                       \
    static inline type ht_load_##suffix(const void* p) { type v; memcpy(&v, p, sizeof v); return v; }     \
    static inline void ht_store_##suffix(void* p, type v) { memcpy(p, &v, sizeof v); }

HT_LOAD_STORE(u16le, uint16_t)
HT_LOAD_STORE(u32le, uint32_t)
HT_LOAD_STORE(u64le, uint64_t)
HT_LOAD_STORE(i32le, int32_t)
HT_LOAD_STORE(f32le, float)

#undef HT_LOAD_STORE
#endif
