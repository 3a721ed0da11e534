/* Rounding against a Hessian: for every type no row is worse than importance rounding, and error feedback is clearly better on the whole. */
#include "quant/gptq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/cpu.h"
#include "formats/decode.h"
#include "quant/block_parts.h"
#include "quant/encode.h"
#include "quant/hessian.h"
#include "tests/ht_test.h"

enum { N = 512, ROWS = 40, TOKENS = 900 };

static uint64_t seed = 88172645463325252u;

static float uniform(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (float)(seed >> 40) * 0x1p-24f;
}

static float normal(void) { return sqrtf(-2.0f * logf(uniform() + 1e-9f)) * cosf(6.2831853f * uniform()); }

/* Inputs with correlated columns, one dead column, one massive one, and some tokens 100 times as large. */
static void make_hessian(float* h)
{
    double* sum = calloc((size_t)N * N, sizeof *sum);
    float*  x   = malloc(N * sizeof *x);
    assert_non_null(sum);
    assert_non_null(x);
    for (int t = 0; t < TOKENS; t++) {
        const float size = t % 300 == 7 ? 100.0f : 1.0f;
        float       run  = 0.0f;
        for (int i = 0; i < N; i++) {
            run  = 0.8f * run + normal();
            x[i] = size * run * (i == 33 ? 40.0f : i == 70 ? 0.0f : 1.0f);
        }
        for (int i = 0; i < N; i++) {
            for (int j = 0; j < N; j++) { sum[i * N + j] += (double)x[i] * (double)x[j]; }
        }
    }
    for (int i = 0; i < N * N; i++) { h[i] = (float)(sum[i] / TOKENS); }
    free(sum);
    free(x);
}

/* Ordinary rows; and a zero row, one with a single outlier, one heavy-tailed, one constant. */
static void make_rows(float* w)
{
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < N; i++) {
            float v = 0.02f * normal();
            if (r == 3) { v = 0.0f; }
            if (r == 5 && i == 100) { v = 3.0f; }
            if (r == 7) { v = 0.02f * normal() / (0.05f + uniform()); }
            if (r == 9) { v = 0.25f; }
            w[r * N + i] = v;
        }
    }
}

static double row_error(const float* h, const float* a, const float* b)
{
    double e = 0.0;
    for (int i = 0; i < N; i++) {
        double sum = 0.0;
        for (int j = 0; j < N; j++) { sum += (double)h[i * N + j] * ((double)a[j] - (double)b[j]); }
        e += sum * ((double)a[i] - (double)b[i]);
    }
    return e;
}

typedef struct fixture {
    float *h, *w, *back;
    uint8_t *blocks, *plain;
} fixture;

static void set_up(fixture* f)
{
    f->h      = malloc((size_t)N * N * sizeof(float));
    f->w      = malloc((size_t)ROWS * N * sizeof(float));
    f->back   = malloc((size_t)ROWS * N * sizeof(float));
    f->blocks = malloc((size_t)ROWS * N * 2);
    f->plain  = malloc((size_t)ROWS * N * 2);
    assert_true(f->h && f->w && f->back && f->blocks && f->plain);
    make_hessian(f->h);
    make_rows(f->w);
}

static void tear_down(fixture* f)
{
    free(f->h);
    free(f->w);
    free(f->back);
    free(f->blocks);
    free(f->plain);
}

static void round_with(const fixture* f, const ht_round_options* options, ht_type type, uint32_t features, uint8_t* blocks, ht_round_report* report)
{
    ht_error         err    = HT_ERROR_INIT;
    ht_rounding*     r      = NULL;
    ht_round_worker* worker = ht_round_worker_create(N);
    assert_non_null(worker);
    if (ht_rounding_create(&r, f->h, N, NULL, options, NULL, &err) != HT_STATUS_OK) { fail_msg("%s", err.message); }
    ht_round_rows(r, worker, type, features, f->w, ROWS, blocks, report);
    ht_rounding_free(r);
    ht_round_worker_free(worker);
}

static void test_no_row_is_worse_and_the_whole_is_better(void** state)
{
    (void)state;
    fixture f;
    set_up(&f);
    const uint32_t features = ht_cpu_features();
    for (uint32_t id = 0; id < HT_TYPE_END; id++) {
        if (!ht_type_get(id) || !ht_block_format_get((ht_type)id)) { continue; }
        const size_t row_bytes = (size_t)(N / ht_type_get(id)->block_elems) * (size_t)ht_type_get(id)->block_bytes;
        double       total[3] = { 0 };
        for (int method = 0; method < 3; method++) {
            ht_round_report report = { 0 };
            round_with(&f, &(ht_round_options){ (ht_round_method)method, 0.01, 0.0, 1 }, (ht_type)id, features, f.blocks, &report);
            if (method == 0) { memcpy(f.plain, f.blocks, ROWS * row_bytes); }
            for (int r = 0; r < ROWS; r++) {
                float back[N], plain[N];
                ht_decode_row_get((ht_type)id)(f.blocks + (size_t)r * row_bytes, back, N);
                ht_decode_row_get((ht_type)id)(f.plain + (size_t)r * row_bytes, plain, N);
                const double e = row_error(f.h, f.w + r * N, back), e_plain = row_error(f.h, f.w + r * N, plain);
                total[method] += e;
                if (!(e <= e_plain * 1.0001 + 1e-12)) { fail_msg("%s method %d row %d: %g, importance rounding %g", ht_type_get(id)->name, method, r, e, e_plain); }
            }
            if (method > 0) { assert_true(fabs(report.error - total[method]) <= 1e-3 * total[method]); }
        }
        print_message("%-8s descent %.3f gptq %.3f of importance rounding\n", ht_type_get(id)->name, total[1] / total[0], total[2] / total[0]);
        const double limit = id == HT_TYPE_mxfp4 ? 0.85 : 0.7;
        assert_true(total[1] < total[0] * 0.9);
        assert_true(total[2] < total[0] * limit);
    }
    tear_down(&f);
}

static void test_all_instruction_sets_give_the_same_bytes(void** state)
{
    (void)state;
    fixture f;
    set_up(&f);
    const ht_type types[] = { HT_TYPE_q4_0, HT_TYPE_q4_1, HT_TYPE_iq4_nl, HT_TYPE_q3_k, HT_TYPE_q4_k, HT_TYPE_mxfp4 };
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const size_t           n_bytes = ROWS * (size_t)(N / ht_type_get(types[k])->block_elems) * (size_t)ht_type_get(types[k])->block_bytes;
        const ht_round_options options = { HT_ROUND_GPTQ, 0.01, 0.1, 2 };
        round_with(&f, &options, types[k], 0, f.plain, NULL);
        for (int isa = HT_ISA_AVX2; isa < HT_ISA_COUNT; isa++) {
            if (!ht_isa_available((ht_isa)isa, ht_cpu_features())) { continue; }
            round_with(&f, &options, types[k], ht_isa_features((ht_isa)isa), f.blocks, NULL);
            assert_memory_equal(f.blocks, f.plain, n_bytes);
        }
    }
    tear_down(&f);
}

/* U^T U H = I, also for a matrix that needs more damping than asked for. */
static void test_factor(void** state)
{
    (void)state;
    enum { M = 48 };
    static float     h[M * M], damped[M * M], ut[M * M];
    ht_error         err = HT_ERROR_INIT;
    ht_hessian_notes notes;
    for (int kind = 0; kind < 3; kind++) { /* 0: well behaved, 1: rank one, 2: indefinite */
        for (int i = 0; i < M; i++) {
            for (int j = 0; j < M; j++) { h[i * M + j] = kind == 0 ? expf(-0.3f * fabsf((float)(i - j))) : kind == 1 ? 1.0f : i == j ? 1.0f : -0.5f; }
        }
        h[5 * M + 5] = kind == 0 ? 0.0f : h[5 * M + 5]; /* dead */
        assert_int_equal(ht_hessian_factor(h, M, 0.01, 0.0, damped, ut, &notes, &err), HT_STATUS_OK);
        assert_int_equal(notes.n_dead, kind == 0);
        assert_int_equal(notes.n_retries > 0, kind == 2);
        for (int i = 0; i < M; i++) {
            for (int j = 0; j < M; j++) {
                double sum = 0.0;
                for (int k = 0; k < M; k++) {
                    double inverse = 0.0;
                    for (int m = 0; m < M; m++) { inverse += (double)ut[i * M + m] * (double)ut[k * M + m]; }
                    sum += inverse * (double)damped[k * M + j];
                }
                assert_true(fabs(sum - (i == j)) < 1e-3);
            }
        }
    }
    h[7] = NAN;
    assert_int_equal(ht_hessian_factor(h, M, 0.01, 0.0, damped, ut, &notes, &err), HT_STATUS_NUMERIC);
    assert_non_null(strstr(err.message, "column 7"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_factor),
        cmocka_unit_test(test_no_row_is_worse_and_the_whole_is_better),
        cmocka_unit_test(test_all_instruction_sets_give_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
