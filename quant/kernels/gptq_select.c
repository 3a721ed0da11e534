#include "formats/base/cpu.h"
#include "quant/gptq_tile.h"

extern const ht_gptq_kernels ht_gptq_kernels_avx512, ht_gptq_kernels_avx2, ht_gptq_kernels_scalar;

const ht_gptq_kernels* ht_gptq_kernels_get(uint32_t cpu_features)
{
#if defined(__x86_64__)
    if (cpu_features & HT_CPU_AVX512) { return &ht_gptq_kernels_avx512; }
    if (cpu_features & HT_CPU_AVX2) { return &ht_gptq_kernels_avx2; }
#else
    (void)cpu_features;
#endif
    return &ht_gptq_kernels_scalar;
}
