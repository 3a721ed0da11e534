#if defined(__AVX2__)
#define GRAPH_OPS_NAME ht_graph_ops_avx2
#define GRAPH_OPS_ISA "avx2"
#define GRAPH_OPS_BYTES 32
#define GRAPH_OPS_NEEDS HT_CPU_AVX2
#include "runtime/kernels/graph_ops_body.h"
#endif
