/*
 * What this CPU can do, and the instruction-set levels that kernels are written for. Detection checks CPUID, the operating system's
 * saved state (XCR0) and, for AMX on Linux, the permission to use tile registers.
 */
#ifndef HT_BASE_CPU_H
#define HT_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Features that a kernel may require: a bit mask. */
typedef enum ht_cpu_feature {
    HT_CPU_AVX2        = 1 << 0, /* AVX2 + FMA + F16C                                       */
    HT_CPU_AVX_VNNI    = 1 << 1,
    HT_CPU_AVX512      = 1 << 2, /* F, BW, DQ, VL                                           */
    HT_CPU_AVX512_VNNI = 1 << 3,
    HT_CPU_AVX512_BF16 = 1 << 4,
    HT_CPU_AMX_INT8    = 1 << 5,
    HT_CPU_AMX_BF16    = 1 << 6,
    HT_CPU_NEON_DOT    = 1 << 7,
    HT_CPU_NEON_I8MM   = 1 << 8
} ht_cpu_feature;

/* Levels for --isa, least first. Each level names the feature mask it may use. */
typedef enum ht_isa {
    HT_ISA_SCALAR = 0,
    HT_ISA_AVX2,
    HT_ISA_AVXVNNI,
    HT_ISA_AVX512,
    HT_ISA_AVX512VNNI,
    HT_ISA_AMX,
    HT_ISA_NEON,
    HT_ISA_COUNT
} ht_isa;

/* Features of the running CPU. Pure: detects at every call (microseconds). */
uint32_t ht_cpu_features(void);

const char* ht_isa_name(ht_isa isa);      /* "scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "amx", "neon" */
uint32_t    ht_isa_features(ht_isa isa);  /* the mask that the level allows                                     */
bool        ht_isa_available(ht_isa isa, uint32_t cpu_features);
ht_isa      ht_isa_best(uint32_t cpu_features);

/*
 * Resolve a name from --isa or HT_ISA ("auto" or NULL: the best available).
 * Errors: ARG unknown name (the known ones are listed), UNSUPPORTED not available on this CPU.
 */
ht_status ht_isa_parse(ht_isa* out, const char* name, ht_error* err);

/* Processor model for reports ("Intel(R) Xeon(R) Processor"), physical core count (>= 1). */
void ht_cpu_model(char* buf, uint64_t n_buf);
int  ht_cpu_n_cores(void);

#ifdef __cplusplus
}
#endif
#endif
