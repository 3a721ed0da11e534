#define GPTQ_KERNELS ht_gptq_kernels_scalar
#include "quant/kernels/gptq_body.h"
