/*
 * Whether the floating-point fields of blocks are numbers. One NaN or Inf in a scale spoils a whole block, and every result that touches it.
 */
#ifndef HT_FORMATS_BLOCK_SCALES_H
#define HT_FORMATS_BLOCK_SCALES_H

#include <stdint.h>

#include "formats/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Index of the first block with NaN or Inf in one of its scale fields (for plain floats: the first such value), n_blocks when there is none.
 * The NaN codes of 8-bit scales count, although ggml's decoders of MXFP4 and NVFP4 read them as numbers. `blocks` at any alignment. Thread-safe.
 */
int64_t ht_blocks_find_nonfinite(ht_type type, const void* blocks, int64_t n_blocks);

#ifdef __cplusplus
}
#endif
#endif
