#include "tools/blas.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char* openblas_get_corename(void); /* declared by some versions of cblas.h only */

static int is_one_of(const char* name, const char* const* names)
{
    for (; *names; names++) {
        if (strcasecmp(name, *names) == 0) { return 1; }
    }
    return 0;
}

void ht_blas_choose_kernels(ht_isa isa, char** argv)
{
    static const char* const with_avx512[] = { "SkylakeX", "Cooperlake", "SapphireRapids", NULL };
    static const char* const with_avx2[]   = { "SkylakeX", "Cooperlake", "SapphireRapids", "Haswell", "Zen", NULL };
    const uint32_t           features      = ht_cpu_features() & ht_isa_features(isa);
    const char*              now           = openblas_get_corename();
    const char*              wanted        = features & HT_CPU_AVX512 ? "SkylakeX" : features & HT_CPU_AVX2 ? "Haswell" : NULL;
    if (!wanted || !now || getenv("OPENBLAS_CORETYPE") || is_one_of(now, features & HT_CPU_AVX512 ? with_avx512 : with_avx2)) { return; }
    if (setenv("OPENBLAS_CORETYPE", wanted, 1) == 0) { (void)execv("/proc/self/exe", argv); }
}
