/* Encoders of every type once more, compiled for an instruction set: ht_<stem>_encode_row_<isa>. Same contract, same bytes (quant/encode.h). */
#ifndef HT_QUANT_ENCODE_VARIANTS_H
#define HT_QUANT_ENCODE_VARIANTS_H

#include "quant/encode.h"

#define HT_TYPE_HALF(stem, id, name, elems, bytes)                                                    \
    void ht_##stem##_encode_row_avx2(const float* restrict x, void* restrict blocks, int64_t n_elems, \
                                     const float* restrict importance);                               \
    void ht_##stem##_encode_row_avx512(const float* restrict x, void* restrict blocks, int64_t n_elems, \
                                       const float* restrict importance);
#define HT_TYPE_CODEC(stem, id, name, elems, bytes, dot, fallback, rel_rmse_max) HT_TYPE_HALF(stem, id, name, elems, bytes)
#include "formats/types.def"

#endif
