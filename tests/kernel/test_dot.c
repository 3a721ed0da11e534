/*
 * Every variant of the kernel table that this CPU can run, against the definition.
 *   rounding   identical to scalar
 *   products   with unit scales all sums are small integers: identical to scalar. With any scales: within a bound of the sum in double.
 * Bound: a variant adds at most n/16 + 64 floats into one value (a block at a time, or 16 lanes of single values, then the lanes), each with a
 * relative error of 2^-23 or less, and no intermediate term exceeds 2 max|w| |a| (kernels may shift codes to be unsigned and subtract the shift again).
 */
#include <math.h>

#include "formats/decode.h"
#include "runtime/kernels/activations.h"
#include "runtime/kernels/kernels.h"
#include "tests/kernel/kernel_data.h"

typedef enum content { UNIT, RANDOM, SATURATED, HUGE_SCALES, TINY_SCALES } content;

static const struct {
    const char* name;
    float       scale;
    bool        unit, saturated;
} contents[] = {
    [UNIT]        = { "unit", 1.0f, true, false },
    [RANDOM]      = { "random", 0.01f, false, false },
    [SATURATED]   = { "saturated", 0.01f, false, true },
    [HUGE_SCALES] = { "huge", 1024.0f, false, false },
    [TINY_SCALES] = { "tiny", 0x1p-20f, false, false },
};

/* f32 activations: for UNIT small integers with a 127 in every block of 32, so that they are their own codes and d is 1. */
static void fill_activations(float* x, int64_t n, content c, uint64_t* random)
{
    for (int64_t i = 0; i < n; i++) {
        if (c == UNIT) { x[i] = i % 32 == 7 ? 127.0f : (float)(int)(ht_test_random(random) % 7) - 3.0f; }
        else if (c == SATURATED) { x[i] = i / 96 % 2 ? -0.37f : 0.37f; }
        else { x[i] = contents[c].scale * ht_test_normal(random); }
    }
}

/* What the activation kernels see, as f32. */
static void decode_activations(ht_type act, const void* row, float* out, int64_t n)
{
    if (act == HT_TYPE_f32) {
        memcpy(out, row, (size_t)n * sizeof *out);
        return;
    }
    void* const      base = (void*)(uintptr_t)row;
    const ht_act_row a    = act == HT_TYPE_q8_0 ? ht_act_row_q8_0(base, n) : ht_act_row_q8_k(base, n);
    const int64_t    size = act == HT_TYPE_q8_0 ? 32 : 256;
    for (int64_t i = 0; i < n; i++) { out[i] = a.d[i / size] * (float)a.q[i]; }
}

static const ht_kernel* scalar_of(const ht_kernel* kernel)
{
    ht_kernels scalar;
    ht_kernels_select(&scalar, 0);
    return kernel->op == HT_OP_DOT ? scalar.dot[kernel->type] : scalar.round[kernel->type];
}

static void check_dot(const ht_kernel* kernel, int64_t n_rows, int64_t n_tokens, int64_t n_cols, content c)
{
    const ht_type       type = kernel->type, act = ht_kernels_act_type(type);
    const ht_type_info* info = ht_type_get((uint32_t)type);
    size_t              w_stride;
    assert_int_equal(ht_row_bytes(info, n_cols, &w_stride, NULL), HT_STATUS_OK);
    const size_t  a_stride = ht_act_row_bytes(act, n_cols);
    const int64_t y_stride = n_rows + 3;
    uint64_t      random   = (uint64_t)type * 1000003u + (uint64_t)(n_rows * 131 + n_tokens * 17 + n_cols) + (uint64_t)c;

    guarded w = guarded_alloc((size_t)n_rows * w_stride), a = guarded_alloc((size_t)n_tokens * a_stride);
    guarded y = guarded_alloc((size_t)((n_tokens - 1) * y_stride + n_rows) * sizeof(float));
    float*  x = malloc((size_t)n_cols * sizeof *x);
    float*  decoded_w = malloc((size_t)n_cols * sizeof *x);
    float*  decoded_a = malloc((size_t)n_cols * sizeof *x);
    assert_true(x && decoded_w && decoded_a);
    fill_weights(type, w.data, n_rows * n_cols, &random, contents[c].scale, contents[c].unit, contents[c].saturated);
    ht_kernels scalar;
    ht_kernels_select(&scalar, 0);
    for (int64_t t = 0; t < n_tokens; t++) {
        unsigned char* row = (unsigned char*)a.data + (size_t)t * a_stride;
        fill_activations(x, n_cols, c, &random);
        if (act == HT_TYPE_f32) { memcpy(row, x, a_stride); } else { scalar.round[act]->round(x, row, n_cols); }
    }
    const ht_panel panel = { .w = w.data, .w_stride = w_stride, .a = a.data, .a_stride = a_stride, .y = y.data, .y_stride = y_stride,
                             .n_rows = n_rows, .n_tokens = n_tokens, .n_cols = n_cols };
    for (int64_t i = 0; i < (n_tokens - 1) * y_stride + n_rows; i++) { panel.y[i] = 12345.0f; }
    kernel->dot(&panel);

    for (int64_t t = 0; t < n_tokens; t++) {
        for (int64_t r = 0; r < n_rows; r++) {
            const unsigned char *w_row = (const unsigned char*)w.data + (size_t)r * w_stride, *a_row = (const unsigned char*)a.data + (size_t)t * a_stride;
            const float          got   = panel.y[t * y_stride + r];
            float                alone = NAN, expected = NAN;
            ht_panel one = { .w = w_row, .w_stride = w_stride, .a = a_row, .a_stride = a_stride, .y = &alone, .y_stride = 1,
                             .n_rows = 1, .n_tokens = 1, .n_cols = n_cols };
            kernel->dot(&one);
            if (memcmp(&got, &alone, sizeof got) != 0) {
                fail_msg("%s %s: row %d token %d of %d x %d x %d is %.9g in the panel and %.9g alone", info->name, ht_isa_name(kernel->isa),
                         (int)r, (int)t, (int)n_rows, (int)n_tokens, (int)n_cols, (double)got, (double)alone);
            }
            one.y = &expected;
            scalar.dot[type]->dot(&one);
            ht_decode_row_get(type)(w_row, decoded_w, n_cols);
            decode_activations(act, a_row, decoded_a, n_cols);
            double sum = 0.0, sum_a = 0.0, max_w = 0.0;
            for (int64_t i = 0; i < n_cols; i++) {
                sum += (double)decoded_w[i] * (double)decoded_a[i];
                sum_a += fabs((double)decoded_a[i]);
                max_w = fmax(max_w, fabs((double)decoded_w[i]));
            }
            if (c == SATURATED) { max_w = fmax(max_w, 128.0 * (double)contents[c].scale); } /* all codes may be 0, shifted by up to 128 */
            const double bound = c == UNIT ? 0.0 : ((double)n_cols / 16.0 + 64.0) * 0x1p-23 * 2.0 * max_w * sum_a;
            const double exact = c == UNIT ? (double)expected : sum;
            if (!(fabs((double)got - exact) <= bound)) {
                fail_msg("%s %s %s: row %d token %d of %d x %d x %d is %.9g, not %.9g within %.3g", info->name, ht_isa_name(kernel->isa),
                         contents[c].name, (int)r, (int)t, (int)n_rows, (int)n_tokens, (int)n_cols, (double)got, exact, bound);
            }
        }
        for (int64_t pad = n_rows; pad < y_stride && t + 1 < n_tokens; pad++) { assert_true(panel.y[t * y_stride + pad] == 12345.0f); }
    }
    free(x);
    free(decoded_w);
    free(decoded_a);
    guarded_free(w);
    guarded_free(a);
    guarded_free(y);
}

static void dot_variants_equal_the_definition(void** state)
{
    (void)state;
    static const int64_t shapes[][2] = { { 1, 1 }, { 2, 1 }, { 3, 2 }, { 4, 4 }, { 5, 3 }, { 9, 1 }, { 1, 9 }, { 6, 5 }, { 8, 8 } };
    static const int64_t cols_float[] = { 1, 15, 16, 17, 33, 64, 100, 577 };
    static const int64_t cols_32[]    = { 32, 64, 96, 128, 224, 256, 288, 480, 576, 1536 };
    static const int64_t cols_256[]   = { 256, 512, 768 };
    const uint32_t       features     = ht_cpu_features();
    size_t               n;
    const ht_kernel*     table = ht_kernels_table(&n);
    for (size_t k = 0; k < n; k++) {
        if (table[k].op != HT_OP_DOT) { continue; }
        if (table[k].needs & ~features) {
            print_message("skipped: %s %s\n", ht_type_get((uint32_t)table[k].type)->name, ht_isa_name(table[k].isa));
            continue;
        }
        const int      size = ht_type_get((uint32_t)table[k].type)->block_elems;
        const int64_t* cols = size == 1 ? cols_float : size == 32 ? cols_32 : cols_256;
        const size_t   n_c  = size == 1 ? 8 : size == 32 ? 10 : 3;
        for (size_t i = 0; i < n_c; i++) {
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) { check_dot(&table[k], shapes[s][0], shapes[s][1], cols[i], UNIT); }
            for (content c = RANDOM; c <= TINY_SCALES; c++) { check_dot(&table[k], 3, 5, cols[i], c); }
        }
    }
}

/* A NaN or Inf among the activations must come out as NaN (or Inf, for f32 activations), whatever they are rounded to. */
static void non_finite_activations_stay_visible(void** state)
{
    (void)state;
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    const uint32_t     features = ht_cpu_features();
    size_t             n;
    const ht_kernel*   table = ht_kernels_table(&n);
    for (size_t k = 0; k < n; k++) {
        if (table[k].op != HT_OP_DOT || (table[k].needs & ~features)) { continue; }
        const ht_type  type = table[k].type, act = ht_kernels_act_type(type);
        size_t         w_stride;
        ht_row_bytes(ht_type_get((uint32_t)type), 512, &w_stride, NULL);
        const size_t   a_stride = ht_act_row_bytes(act, 512);
        uint64_t       random   = 5;
        unsigned char* w        = malloc(w_stride);
        unsigned char* a        = aligned_alloc(64, ht_act_align(a_stride));
        assert_true(w && a);
        fill_weights(type, w, 512, &random, 0.01f, false, false);
        for (size_t i = 0; i < n; i++) {
            if (table[i].op != HT_OP_ROUND || table[i].type != act || (table[i].needs & ~features)) { continue; }
            for (int b = 0; b < 3; b++) {
                float x[512], y = 0.0f;
                for (int j = 0; j < 512; j++) { x[j] = 0.25f; }
                x[300] = bad[b];
                table[i].round(x, a, 512);
                const ht_panel one = { .w = w, .w_stride = w_stride, .a = a, .a_stride = a_stride, .y = &y, .y_stride = 1,
                                       .n_rows = 1, .n_tokens = 1, .n_cols = 512 };
                table[k].dot(&one);
                assert_true(isnan(y));
            }
        }
        free(w);
        free(a);
    }
}

static void round_variants_equal_the_definition(void** state)
{
    (void)state;
    const uint32_t   features = ht_cpu_features();
    size_t           n;
    const ht_kernel* table = ht_kernels_table(&n);
    for (size_t k = 0; k < n; k++) {
        if (table[k].op != HT_OP_ROUND || (table[k].needs & ~features)) { continue; }
        const int64_t size = ht_type_get((uint32_t)table[k].type)->block_elems;
        for (int64_t n_blocks = 1; n_blocks <= 9; n_blocks++) {
            const int64_t n_cols  = n_blocks * size;
            const size_t  n_bytes = ht_act_row_bytes(table[k].type, n_cols);
            guarded x = guarded_alloc((size_t)n_cols * sizeof(float)), got = guarded_alloc(n_bytes), expected = guarded_alloc(n_bytes);
            uint64_t random = (uint64_t)n_blocks;
            float*   v      = x.data;
            static const float specials[] = { NAN, INFINITY, 1e-41f, 1e-38f, 3e38f, 0.0f, 1e7f };
            for (int round = 0; round < 40; round++) {
                for (int64_t i = 0; i < n_cols; i++) {
                    v[i] = round < 20 ? ht_test_normal(&random) : (float)(int)(ht_test_random(&random) % 255) * 0.5f - 63.5f; /* ties */
                }
                if (round % 2) { v[ht_test_random(&random) % (uint64_t)n_cols] = specials[ht_test_random(&random) % 7]; }
                if (round == 38) { memset(v, 0, (size_t)n_cols * sizeof *v); }
                if (round == 39) { for (int64_t i = 0; i < n_cols; i++) { v[i] = i % 2 ? -3e-39f : 1e-39f; } }
                table[k].round(v, got.data, n_cols);
                scalar_of(&table[k])->round(v, expected.data, n_cols);
                if (memcmp(got.data, expected.data, n_bytes) != 0) {
                    fail_msg("%s %s: %d blocks, round %d differ", ht_type_get((uint32_t)table[k].type)->name, ht_isa_name(table[k].isa),
                             (int)n_blocks, round);
                }
            }
            guarded_free(x);
            guarded_free(got);
            guarded_free(expected);
        }
    }
}

/* The definition itself: codes are nearest, the error is at most half a step (and the rounding of d to half). */
static void rounding_is_to_nearest(void** state)
{
    (void)state;
    ht_kernels scalar;
    ht_kernels_select(&scalar, 0);
    static const ht_type types[] = { HT_TYPE_q8_0, HT_TYPE_q8_k };
    for (int k = 0; k < 2; k++) {
        uint64_t       random = 9;
        float          x[512], decoded[512];
        unsigned char* row = aligned_alloc(64, ht_act_row_bytes(types[k], 512));
        assert_non_null(row);
        for (int i = 0; i < 512; i++) { x[i] = ht_test_normal(&random); }
        scalar.round[types[k]]->round(x, row, 512);
        decode_activations(types[k], row, decoded, 512);
        const ht_act_row a = types[k] == HT_TYPE_q8_0 ? ht_act_row_q8_0(row, 512) : ht_act_row_q8_k(row, 512);
        const int        size = types[k] == HT_TYPE_q8_0 ? 32 : 256;
        for (int i = 0; i < 512; i++) {
            assert_true(fabsf(decoded[i] - x[i]) <= a.d[i / size] * (0.5f + 127.0f * 0x1p-11f));
        }
        for (int b = 0; b < 512 / size; b++) {
            int sum = 0;
            for (int i = 0; i < size; i++) { sum += a.q[size * b + i]; }
            if (a.sum_d) { assert_true(a.sum_d[b] == a.d[b] * (float)sum); }
            for (int g = 0; a.sums && g < 16; g++) { sum -= a.sums[16 * b + g]; }
            if (a.sums) { assert_int_equal(sum, 0); }
        }
        free(row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dot_variants_equal_the_definition),
        cmocka_unit_test(non_finite_activations_stay_visible),
        cmocka_unit_test(round_variants_equal_the_definition),
        cmocka_unit_test(rounding_is_to_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
