/*
 * Speed of the encoders: MB of F16 source (2 bytes per value) per CPU second, one thread, for each type and instruction set.
 *
 *     bench_encode [N_COLS [STEM...]]        default: rows of 4096, all types
 *
 * Rows are normal with a few outliers and are encoded one call per row, as with an importance vector; the best of several passes counts.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/base/cpu.h"
#include "quant/encode.h"

enum { N_PASSES = 5, PASS_ELEMS = 1 << 18 };

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Triangular noise and one outlier in a thousand: the searches do not branch on the data, so its kind hardly matters. */
static void fill(float* x, float* importance, int64_t n)
{
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (int k = 0; k < 2; k++) {
            state = state * 1664525u + 1013904223u;
            sum += (float)(state >> 8) * 0x1p-24f - 0.5f;
        }
        x[i]          = 0.04f * sum * (i % 1000 == 7 ? 30.0f : 1.0f);
        importance[i] = 0.1f + sum * sum;
    }
}

static double mb_per_second(ht_encode_row_fn encode, const float* x, const float* importance, void* blocks, int n_cols)
{
    double best = 0.0;
    for (int pass = 0; pass < N_PASSES; pass++) {
        const double start = cpu_seconds();
        int64_t      done  = 0;
        for (; done + n_cols <= PASS_ELEMS; done += n_cols) { encode(x + done, blocks, n_cols, importance); }
        const double rate = 2e-6 * (double)done / (cpu_seconds() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

static int wanted(const char* stem, int argc, char** argv)
{
    for (int a = 2; a < argc; a++) {
        if (strcmp(argv[a], stem) == 0) { return 1; }
    }
    return argc <= 2;
}

int main(int argc, char** argv)
{
    const int n_cols = argc > 1 ? atoi(argv[1]) : 4096;
    float *   x = malloc(PASS_ELEMS * sizeof *x), *importance = malloc(PASS_ELEMS * sizeof *importance), *blocks = malloc(PASS_ELEMS * sizeof *blocks);
    if (!x || !importance || !blocks || n_cols < 1 || n_cols > PASS_ELEMS) { return 2; }
    fill(x, importance, PASS_ELEMS);
    const uint32_t features = ht_cpu_features();
    char           model[128];
    ht_cpu_model(model, sizeof model);
    printf("# %s, one thread, rows of %d; MB of F16 source per CPU second, plain / with importance\n", model, n_cols);
    for (uint32_t id = 0; id < HT_TYPE_END; id++) {
        const ht_type_info* info = ht_type_get(id);
        if (!info || !info->can_encode || n_cols % info->block_elems != 0 || !wanted(info->stem, argc, argv)) { continue; }
        printf("%-7s", info->name);
        ht_encode_row_fn last = NULL;
        for (int isa = 0; isa < HT_ISA_COUNT; isa++) {
            const ht_encode_row_fn encode = ht_encode_row_get(info->type, ht_isa_features((ht_isa)isa) & features);
            if (!ht_isa_available((ht_isa)isa, features) || encode == last) { continue; }
            printf("  %s %.0f / %.0f", ht_isa_name((ht_isa)isa), mb_per_second(encode, x, NULL, blocks, n_cols),
                   mb_per_second(encode, x, importance, blocks, n_cols));
            last = encode;
        }
        printf("\n");
    }
    free(x);
    free(importance);
    free(blocks);
    return 0;
}
