/* The driver: several matrices of mixed types at once, any number of threads, both kinds of compute. */
#include <math.h>

#include "formats/decode.h"
#include "runtime/kernels/activations.h"
#include "runtime/matmul.h"
#include "tests/kernel/kernel_data.h"

enum { N_COLS = 512, N_TOKENS = 7, N_JOBS = 6 };

static const struct {
    ht_type type;
    int64_t n_rows;
} shapes[N_JOBS] = { { HT_TYPE_q4_k, 70 }, { HT_TYPE_q5_0, 33 }, { HT_TYPE_f16, 5 }, { HT_TYPE_q6_k, 32 }, { HT_TYPE_tq2_0, 1 }, { HT_TYPE_f32, 64 } };

typedef struct fixture {
    ht_matrix     w[N_JOBS];
    ht_matmul_job jobs[N_JOBS];
    float         x[N_TOKENS * N_COLS];
    void*         scratch;
} fixture;

static fixture* fixture_create(void)
{
    fixture* f      = calloc(1, sizeof *f);
    uint64_t random = 3;
    assert_non_null(f);
    for (int j = 0; j < N_JOBS; j++) {
        ht_matrix* w = &f->w[j];
        w->type      = shapes[j].type;
        w->n_rows    = shapes[j].n_rows;
        w->n_cols    = N_COLS;
        assert_int_equal(ht_row_bytes(ht_type_get((uint32_t)w->type), N_COLS, &w->row_bytes, NULL), HT_STATUS_OK);
        unsigned char* data = malloc((size_t)w->n_rows * w->row_bytes);
        assert_non_null(data);
        if (w->type == HT_TYPE_tq2_0) { for (size_t i = 0; i < w->row_bytes; i++) { data[i] = (uint8_t)(i * 37 % 64); } }
        else { fill_weights(w->type, data, w->n_rows * N_COLS, &random, 0.05f, false, false); }
        w->data      = data;
        f->jobs[j].w = w;
        f->jobs[j].y = malloc((size_t)(w->n_rows * N_TOKENS) * sizeof(float));
        assert_non_null(f->jobs[j].y);
    }
    for (int i = 0; i < N_TOKENS * N_COLS; i++) { f->x[i] = ht_test_normal(&random); }
    f->scratch = aligned_alloc(64, ht_act_align(ht_matmul_scratch_bytes(N_COLS, N_TOKENS, 5)));
    assert_non_null(f->scratch);
    return f;
}

static void fixture_free(fixture* f)
{
    for (int j = 0; j < N_JOBS; j++) {
        free((void*)(uintptr_t)f->w[j].data);
        free(f->jobs[j].y);
    }
    free(f->scratch);
    free(f);
}

/* Largest |y - sum in double| / sum of |terms| over a job. */
static double worst_error(const fixture* f, int j)
{
    const ht_matrix* w = &f->w[j];
    double           worst = 0.0;
    float            row[N_COLS];
    for (int64_t r = 0; r < w->n_rows; r++) {
        ht_decode_row_get(w->type)((const unsigned char*)w->data + (size_t)r * w->row_bytes, row, N_COLS);
        for (int64_t t = 0; t < N_TOKENS; t++) {
            double sum = 0.0, sum_abs = 0.0;
            for (int i = 0; i < N_COLS; i++) {
                const double term = (double)row[i] * (double)f->x[t * N_COLS + i];
                sum += term;
                sum_abs += fabs(term);
            }
            const double err = fabs((double)f->jobs[j].y[t * w->n_rows + r] - sum) / sum_abs;
            if (!(err <= worst)) { worst = err; }
        }
    }
    return worst;
}

static void products_are_right(void** state)
{
    (void)state;
    static const ht_isa levels[] = { HT_ISA_SCALAR, HT_ISA_COUNT };
    fixture* f = fixture_create();
    for (int l = 0; l < 2; l++) {
        ht_kernels kernels;
        ht_kernels_select(&kernels, levels[l] == HT_ISA_COUNT ? ht_cpu_features() : ht_isa_features(levels[l]));
        for (int compute = HT_COMPUTE_EXACT; compute <= HT_COMPUTE_FAST; compute++) {
            ht_matmul(&kernels, (ht_compute)compute, f->jobs, N_JOBS, f->x, N_TOKENS, f->scratch, 2);
            for (int j = 0; j < N_JOBS; j++) {
                const bool rounded = compute == HT_COMPUTE_FAST && ht_kernels_act_type(f->w[j].type) != HT_TYPE_f32;
                /* exact: 16 lanes of N_COLS / 16 sums, each off by 2^-24. Rounded activations are off by up to half a step of max|x| / 127, with
                 * random signs: far below 1 % of the sum of magnitudes. */
                const double bound = rounded ? 0.01 : (N_COLS / 16.0 + 16.0) * 0x1p-24;
                const double err   = worst_error(f, j);
                if (!(err <= bound) || (rounded && err < 1e-6)) {
                    fail_msg("%s, compute %d: relative error %.3g, bound %.3g", ht_type_get((uint32_t)f->w[j].type)->name, compute, err, bound);
                }
            }
        }
    }
    fixture_free(f);
}

static void threads_and_batches_do_not_matter(void** state)
{
    (void)state;
    ht_kernels kernels;
    ht_kernels_select(&kernels, ht_cpu_features());
    fixture *one = fixture_create(), *many = fixture_create();
    for (int compute = HT_COMPUTE_EXACT; compute <= HT_COMPUTE_FAST; compute++) {
        ht_matmul(&kernels, (ht_compute)compute, many->jobs, N_JOBS, many->x, N_TOKENS, many->scratch, 5);
        for (int64_t t = 0; t < N_TOKENS; t++) { /* one matrix, one token, one thread at a time */
            for (int j = 0; j < N_JOBS; j++) {
                const int64_t       n   = one->w[j].n_rows;
                const ht_matmul_job job = { &one->w[j], one->jobs[j].y + t * n };
                ht_matmul(&kernels, (ht_compute)compute, &job, 1, one->x + t * N_COLS, 1, one->scratch, 1);
            }
        }
        for (int j = 0; j < N_JOBS; j++) {
            assert_memory_equal(one->jobs[j].y, many->jobs[j].y, (size_t)(N_TOKENS * one->w[j].n_rows) * sizeof(float));
        }
    }
    fixture_free(one);
    fixture_free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right),
        cmocka_unit_test(threads_and_batches_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
