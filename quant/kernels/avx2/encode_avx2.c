#if defined(__AVX2__)
#define HT_ENCODER(stem) ht_##stem##_encode_row_avx2
#include "quant/kernels/encode_all.h"
#endif
