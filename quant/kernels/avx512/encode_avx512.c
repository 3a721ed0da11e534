#if defined(__AVX512F__)
#define HT_ENCODER(stem) ht_##stem##_encode_row_avx512
#include "quant/kernels/encode_all.h"
#endif
