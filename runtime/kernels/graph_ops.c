#include "runtime/kernels/graph_ops.h"

#include "formats/base/cpu.h"

extern const ht_graph_ops ht_graph_ops_scalar;
#if defined(__x86_64__)
extern const ht_graph_ops ht_graph_ops_avx2, ht_graph_ops_avx512;
#endif

const ht_graph_ops* const ht_graph_ops_all[] = {
#if defined(__x86_64__)
    &ht_graph_ops_avx512,
    &ht_graph_ops_avx2,
#endif
    &ht_graph_ops_scalar, /* four lanes of the baseline: SSE2 or NEON */
    0,
};

const ht_graph_ops* ht_graph_ops_get(uint32_t cpu_features)
{
    int i = 0;
    while (ht_graph_ops_all[i]->needs & ~cpu_features) { i++; }
    return ht_graph_ops_all[i];
}

size_t ht_attend_scratch(const ht_attend* attend, int64_t n_queries)
{
    const int64_t n_rows = n_queries * attend->group;
    return (size_t)(HT_ATTEND_KEYS * (1 + attend->head_dim + attend->head_dim_v_padded) + n_rows * (2 + attend->head_dim_v_padded));
}
