#define GRAPH_OPS_NAME ht_graph_ops_scalar
#define GRAPH_OPS_ISA "scalar"
#define GRAPH_OPS_BYTES 16
#define GRAPH_OPS_NEEDS 0
#include "runtime/kernels/graph_ops_body.h"
