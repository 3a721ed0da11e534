/* OpenBLAS chooses its kernels when it is loaded, by a list of CPU models: on a CPU newer than the library it falls back to SSE, five times slower. */
#ifndef HT_TOOLS_BLAS_H
#define HT_TOOLS_BLAS_H

#include "formats/base/cpu.h"

/*
 * If OpenBLAS took lesser kernels than `isa` allows, start this program again with OPENBLAS_CORETYPE set to the right ones; a value the user has set stays. Returns when
 * there is nothing to do, or it cannot be done (then matrix products are slow, and the same to the last digits).
 */
void ht_blas_choose_kernels(ht_isa isa, char** argv);

#endif
