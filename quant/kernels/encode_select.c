#include "quant/kernels/encode_variants.h"

#include "formats/base/cpu.h"

typedef struct ht_encode_kernel {
    ht_type          type;
    uint32_t         needs; /* features; 0: any CPU */
    ht_encode_row_fn encode;
} ht_encode_kernel;

#if defined(__x86_64__)
#define VARIANTS(stem)                                                      \
    { HT_TYPE_##stem, HT_CPU_AVX512, ht_##stem##_encode_row_avx512 },       \
    { HT_TYPE_##stem, HT_CPU_AVX2, ht_##stem##_encode_row_avx2 },
#else
#define VARIANTS(stem)
#endif

/* Best first within a type. */
static const ht_encode_kernel kernels[] = {
#define HT_TYPE_HALF(stem, id, name, elems, bytes) VARIANTS(stem) { HT_TYPE_##stem, 0, ht_##stem##_encode_row_ref },
#define HT_TYPE_CODEC(stem, id, name, elems, bytes, dot, fallback, rel_rmse_max) HT_TYPE_HALF(stem, id, name, elems, bytes)
#include "formats/types.def"
};

ht_encode_row_fn ht_encode_row_get(ht_type type, uint32_t cpu_features)
{
    for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++) {
        if (kernels[k].type == type && (kernels[k].needs & ~cpu_features) == 0) { return kernels[k].encode; }
    }
    return NULL;
}
