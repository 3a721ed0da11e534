#if defined(__AVX512F__)
#define GPTQ_KERNELS ht_gptq_kernels_avx512
#include "quant/kernels/gptq_body.h"
#endif
