/* The table of kernels: one row per variant, best first. Adding a kernel is its file and a row here. */
#include "runtime/kernels/variants.h"

#define AVX512VNNI_DOT(stem) \
    { HT_OP_DOT, HT_TYPE_##stem, HT_ISA_AVX512VNNI, HT_CPU_AVX512 | HT_CPU_AVX512_VNNI, ht_dot_##stem##_avx512vnni, NULL },
#define AVX512_DOT(stem) { HT_OP_DOT, HT_TYPE_##stem, HT_ISA_AVX512, HT_CPU_AVX512, ht_dot_##stem##_avx512, NULL },
#define AVX2_DOT(stem) { HT_OP_DOT, HT_TYPE_##stem, HT_ISA_AVX2, HT_CPU_AVX2, ht_dot_##stem##_avx2, NULL },
#define SCALAR_DOT(stem) { HT_OP_DOT, HT_TYPE_##stem, HT_ISA_SCALAR, 0, ht_dot_##stem##_scalar, NULL },

static const ht_kernel table[] = {
#if defined(__x86_64__)
    HT_DOT_Q8_0_TYPES(AVX512VNNI_DOT)
    HT_DOT_Q8_K_TYPES(AVX512VNNI_DOT)
    HT_DOT_FLOAT_TYPES(AVX512_DOT)
    HT_DOT_ALL_TYPES(AVX2_DOT)
    { HT_OP_ROUND, HT_TYPE_q8_0, HT_ISA_AVX512, HT_CPU_AVX512, NULL, ht_round_q8_0_avx512 },
    { HT_OP_ROUND, HT_TYPE_q8_k, HT_ISA_AVX512, HT_CPU_AVX512, NULL, ht_round_q8_k_avx512 },
    { HT_OP_ROUND, HT_TYPE_q8_0, HT_ISA_AVX2, HT_CPU_AVX2, NULL, ht_round_q8_0_avx2 },
    { HT_OP_ROUND, HT_TYPE_q8_k, HT_ISA_AVX2, HT_CPU_AVX2, NULL, ht_round_q8_k_avx2 },
#endif
    HT_DOT_ALL_TYPES(SCALAR_DOT)
    { HT_OP_ROUND, HT_TYPE_q8_0, HT_ISA_SCALAR, 0, NULL, ht_round_q8_0_scalar },
    { HT_OP_ROUND, HT_TYPE_q8_k, HT_ISA_SCALAR, 0, NULL, ht_round_q8_k_scalar },
};

const ht_kernel* ht_kernels_table(size_t* n)
{
    *n = sizeof table / sizeof *table;
    return table;
}

void ht_kernels_select(ht_kernels* out, uint32_t cpu_features)
{
    *out = (ht_kernels){ { NULL }, { NULL } };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const ht_kernel*  k    = &table[i];
        const ht_kernel** slot = k->op == HT_OP_DOT ? &out->dot[k->type] : &out->round[k->type];
        if (!*slot && (k->needs & ~cpu_features) == 0) { *slot = k; }
    }
}
