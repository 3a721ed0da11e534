/*
 * What every block_<stem>.h starts with: the columns of types.def as compile-time constants, and the attribute of a block struct.
 *
 * Blocks lie in files and rows back to back at any alignment, so the structs are packed: a field is read where it is, and a row of blocks may
 * be reached by casting a byte pointer. Scales named d, m, dmin are IEEE half bits (formats/base/half.h).
 * In the pictures `i..j` are byte offsets and a nibble or bit is labelled with the element that it belongs to.
 */
#ifndef HT_FORMATS_BLOCK_H
#define HT_FORMATS_BLOCK_H

#include <stdint.h>

#include "formats/base/half.h"
#include "formats/decode.h"

enum {
#define HT_BLOCK_COLUMNS(stem, elems, bytes) HT_BLOCK_ELEMS_##stem = elems, HT_BLOCK_BYTES_##stem = bytes,
#define HT_TYPE_READ(stem, id, name, elems, bytes) HT_BLOCK_COLUMNS(stem, elems, bytes)
#define HT_TYPE_CODEC(stem, id, name, elems, bytes, dot, fallback, rel_rmse_max) HT_BLOCK_COLUMNS(stem, elems, bytes)
#include "formats/types.def"
#undef HT_BLOCK_COLUMNS
    HT_K_ELEMS = 256 /* the super-block of all K, IQ (but IQ4_NL) and TQ types */
};

#define HT_PACKED __attribute__((packed))

/* The struct has exactly the bytes that types.def says. */
#define HT_BLOCK_CHECK(stem) _Static_assert(sizeof(ht_block_##stem) == HT_BLOCK_BYTES_##stem, #stem " block size")

#endif
