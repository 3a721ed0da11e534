#if defined(__AVX2__)
#define GPTQ_KERNELS ht_gptq_kernels_avx2
#include "quant/kernels/gptq_body.h"
#endif
