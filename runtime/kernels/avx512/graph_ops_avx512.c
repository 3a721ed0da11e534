#if defined(__AVX512F__)
#define GRAPH_OPS_NAME ht_graph_ops_avx512
#define GRAPH_OPS_ISA "avx512"
#define GRAPH_OPS_BYTES 64
#define GRAPH_OPS_NEEDS HT_CPU_AVX512
#include "runtime/kernels/graph_ops_body.h"
#endif
