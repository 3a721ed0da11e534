#include "formats/base/cpu.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool amx_permitted(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* Bit positions: Intel SDM volume 2A, CPUID leaves 1, 7.0 and 7.1. */
uint32_t ht_cpu_features(void)
{
    uint32_t a, b, c, d, b7, c7, d7, a71 = 0, mask = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) { return 0; }
    const bool osxsave = c >> 27 & 1, avx = c >> 28 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1;
    if (!osxsave || !avx || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) { return 0; }
    uint32_t unused_b, unused_c, unused_d;
    __get_cpuid_count(7, 1, &a71, &unused_b, &unused_c, &unused_d);

    const uint64_t xcr0   = read_xcr0();
    const bool     os_ymm = (xcr0 & 0x6) == 0x6, os_zmm = (xcr0 & 0xE6) == 0xE6, os_tile = (xcr0 & 0x60000) == 0x60000;
    if (os_ymm && (b7 >> 5 & 1) && fma && f16c) {
        mask |= HT_CPU_AVX2;
        if (a71 >> 4 & 1) { mask |= HT_CPU_AVX_VNNI; }
    }
    const bool f_dq_bw_vl = (b7 >> 16 & 1) && (b7 >> 17 & 1) && (b7 >> 30 & 1) && (b7 >> 31 & 1);
    if ((mask & HT_CPU_AVX2) && os_zmm && f_dq_bw_vl) {
        mask |= HT_CPU_AVX512;
        if (c7 >> 11 & 1) { mask |= HT_CPU_AVX512_VNNI; }
        if (a71 >> 5 & 1) { mask |= HT_CPU_AVX512_BF16; }
        if (os_tile && (d7 >> 24 & 1) && amx_permitted()) {
            if (d7 >> 25 & 1) { mask |= HT_CPU_AMX_INT8; }
            if (d7 >> 22 & 1) { mask |= HT_CPU_AMX_BF16; }
        }
    }
    return mask;
}
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

uint32_t ht_cpu_features(void)
{
    uint32_t mask = 0;
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) { mask |= HT_CPU_NEON_DOT; }
    if (getauxval(AT_HWCAP2) & HWCAP2_I8MM) { mask |= HT_CPU_NEON_I8MM; }
    return mask;
}
#else
uint32_t ht_cpu_features(void) { return 0; }
#endif

static const struct {
    const char* name;
    uint32_t    required; /* the level exists on a CPU with all of these  */
    uint32_t    allowed;  /* kernels of the level may use any of these    */
} isa_levels[HT_ISA_COUNT] = {
    [HT_ISA_SCALAR]     = { "scalar", 0, 0 },
    [HT_ISA_AVX2]       = { "avx2", HT_CPU_AVX2, HT_CPU_AVX2 },
    [HT_ISA_AVXVNNI]    = { "avxvnni", HT_CPU_AVX2 | HT_CPU_AVX_VNNI, HT_CPU_AVX2 | HT_CPU_AVX_VNNI },
    [HT_ISA_AVX512]     = { "avx512", HT_CPU_AVX512, HT_CPU_AVX2 | HT_CPU_AVX512 },
    [HT_ISA_AVX512VNNI] = { "avx512vnni", HT_CPU_AVX512 | HT_CPU_AVX512_VNNI,
                            HT_CPU_AVX2 | HT_CPU_AVX_VNNI | HT_CPU_AVX512 | HT_CPU_AVX512_VNNI | HT_CPU_AVX512_BF16 },
    [HT_ISA_AMX]        = { "amx", HT_CPU_AVX512 | HT_CPU_AVX512_VNNI | HT_CPU_AMX_INT8,
                            HT_CPU_AVX2 | HT_CPU_AVX_VNNI | HT_CPU_AVX512 | HT_CPU_AVX512_VNNI | HT_CPU_AVX512_BF16 |
                                HT_CPU_AMX_INT8 | HT_CPU_AMX_BF16 },
    [HT_ISA_NEON]       = { "neon", HT_CPU_NEON_DOT, HT_CPU_NEON_DOT | HT_CPU_NEON_I8MM },
};

const char* ht_isa_name(ht_isa isa) { return (unsigned)isa < HT_ISA_COUNT ? isa_levels[isa].name : "unknown"; }

uint32_t ht_isa_features(ht_isa isa) { return isa_levels[isa].allowed; }

bool ht_isa_available(ht_isa isa, uint32_t cpu_features)
{
    return (isa_levels[isa].required & ~cpu_features) == 0;
}

ht_isa ht_isa_best(uint32_t cpu_features)
{
    ht_isa best = HT_ISA_SCALAR;
    for (int i = 0; i < HT_ISA_COUNT; i++) {
        if (ht_isa_available((ht_isa)i, cpu_features)) { best = (ht_isa)i; }
    }
    return best;
}

ht_status ht_isa_parse(ht_isa* out, const char* name, ht_error* err)
{
    const uint32_t features = ht_cpu_features();
    if (!name || strcmp(name, "auto") == 0) {
        *out = ht_isa_best(features);
        return HT_STATUS_OK;
    }
    for (int i = 0; i < HT_ISA_COUNT; i++) {
        if (strcmp(name, isa_levels[i].name) != 0) { continue; }
        if (!ht_isa_available((ht_isa)i, features)) {
            return ht_fail(err, HT_STATUS_UNSUPPORTED, "instruction set %s is not available on this CPU (best here: %s)", name,
                           ht_isa_name(ht_isa_best(features)));
        }
        *out = (ht_isa)i;
        return HT_STATUS_OK;
    }
    return ht_fail(err, HT_STATUS_ARG,
                   "unknown instruction set \"%s\" (known: auto scalar avx2 avxvnni avx512 avx512vnni amx neon)", name);
}

void ht_cpu_model(char* buf, uint64_t n_buf)
{
    char  line[256];
    FILE* f = fopen("/proc/cpuinfo", "r");
    snprintf(buf, n_buf, "unknown CPU");
    while (f && fgets(line, sizeof line, f)) {
        char* colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) { continue; }
        line[strcspn(line, "\n")] = '\0';
        snprintf(buf, n_buf, "%s", colon + 2);
        break;
    }
    if (f) { fclose(f); }
}

/* Distinct (package, core) pairs of the online processors; SMT siblings do not help bandwidth-bound kernels. */
int ht_cpu_n_cores(void)
{
    enum { MAX_CORES = 1024 };
    static const char* const pattern = "/sys/devices/system/cpu/cpu%d/topology/%s";
    long seen[MAX_CORES];
    int  n_seen = 0;
    const long n_online = sysconf(_SC_NPROCESSORS_ONLN);
    for (int cpu = 0; cpu < MAX_CORES && cpu < n_online; cpu++) {
        char path[128];
        long core = cpu, package = 0;
        snprintf(path, sizeof path, pattern, cpu, "core_id");
        FILE* f = fopen(path, "r");
        if (f) { if (fscanf(f, "%ld", &core) != 1) { core = cpu; } fclose(f); }
        snprintf(path, sizeof path, pattern, cpu, "physical_package_id");
        f = fopen(path, "r");
        if (f) { if (fscanf(f, "%ld", &package) != 1) { package = 0; } fclose(f); }
        const long key = package * 65536 + core;
        int i = 0;
        while (i < n_seen && seen[i] != key) { i++; }
        if (i == n_seen) { seen[n_seen++] = key; }
    }
    return n_seen > 0 ? n_seen : 1;
}
