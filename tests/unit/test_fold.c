/* Channel scales (bad inputs K8 44, 45), idle experts (K8 43), and that folding changes nothing but rounding. */
#include "quant/fold.h"

#include <math.h>

#include "formats/base/cpu.h"
#include "tests/ht_test.h"
#include "tests/temp_folder.h"

/* K8 44: zero channels, a tiny and a huge one. */
static void test_scales_are_finite(void** state)
{
    (void)state;
    enum { N = 256 };
    float mean_square[N], scales[N];
    for (int i = 0; i < N; i++) { mean_square[i] = 0.5f + 0.01f * (float)i; }
    mean_square[5] = mean_square[9] = 0.0f;
    mean_square[20]                 = 1e-16f;
    mean_square[21]                 = 1e8f;
    mean_square[22]                 = INFINITY;
    for (double alpha = 0.0; alpha <= 1.0; alpha += 0.25) {
        ht_fold_scales(mean_square, N, alpha, scales);
        for (int i = 0; i < N; i++) { assert_true(isfinite(scales[i]) && scales[i] > 0.0f); }
        assert_true(scales[5] == 1.0f && scales[9] == 1.0f && scales[22] == 1.0f);
        assert_true(alpha > 0.0 ? scales[21] > scales[30] && scales[20] < scales[30] : scales[21] == 1.0f);
    }
    memset(mean_square, 0, sizeof mean_square);
    ht_fold_scales(mean_square, N, 0.5, scales);
    for (int i = 0; i < N; i++) { assert_true(scales[i] == 1.0f); }
}

/* (W diag(s)) (x / s) = W x, and the Hessian of x / s weighs an error of the folded weights as the old one weighed it unfolded. */
static void test_folding_is_exact(void** state)
{
    (void)state;
    enum { N = 64, R = 16 };
    static float     w[R * N], folded[R * N], h[N * N], zero[R * N], columns[N], rows[R];
    uint64_t         seed = 4;
    ht_error         err = HT_ERROR_INIT;
    ht_round_worker* worker = ht_round_worker_create(N);
    for (int i = 0; i < R * N; i++) { w[i] = folded[i] = ht_test_normal(&seed); }
    for (int i = 0; i < N; i++) { columns[i] = 0.5f + 0.05f * (float)i; }
    for (int i = 0; i < R; i++) { rows[i] = 2.0f - 0.1f * (float)i; }
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) { h[i * N + j] = expf(-0.2f * fabsf((float)(i - j))); }
    }
    ht_tensor_statistics t = { .n = N, .n_mats = 1, .n_roles = 1, .hessian = h, .roles = { { .hessian = h } } };
    const double         before = ht_tensor_cost(&t, false, worker, 0, w, zero, 0, R);
    const ht_fold        fold = { columns, rows };
    ht_fold_rows(&fold, folded, 0, R, N);
    assert_int_equal(ht_fold_statistics(&fold, &t, R, &err), HT_STATUS_OK);
    const double after = ht_tensor_cost(&t, false, worker, 0, folded, zero, 0, R);
    assert_true(fabs(after - before) < 1e-4 * before);
    free(t.folded_weight);
    ht_round_worker_free(worker);
}

/* K8 43: of four experts, the third saw no token. */
static void test_idle_expert(void** state)
{
    (void)state;
    enum { N = 256, MATS = 4 };
    ht_error              err = HT_ERROR_INIT;
    temp_folder           folder = temp_folder_create();
    ht_meta*              meta = ht_meta_create();
    ht_statistics_writer* w = NULL;
    ht_statistics*        s = NULL;
    double                sums[N * MATS], counts[MATS] = { 100, 50, 0, 1 };
    for (int i = 0; i < N * MATS; i++) { sums[i] = counts[i / N] * (1.0 + (double)(i % N)); }
    const ht_statistics_shape shape = { .name = "blk.0.ffn_down_exps.weight", .n_cols = N, .n_mats = MATS };
    assert_int_equal(ht_statistics_writer_create(&w, temp_path(&folder, "s.gguf"), meta, &shape, 1, false, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_writer_put_sums(w, shape.name, sums, counts, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_writer_finish(w, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_open(&s, temp_path(&folder, "s.gguf"), false, &err), HT_STATUS_OK);
    const ht_tensor_info info = { .name = "blk.0.ffn_down_exps.weight", .type = HT_TYPE_f32, .n_dims = 3, .ne = { N, 8, MATS, 1 } };
    ht_tensor_statistics t = { 0 };
    assert_int_equal(ht_tensor_statistics_init(&t, s, &info, true, &err), HT_STATUS_OK);
    for (int i = 0; i < N; i++) {
        assert_true(t.importance[i] == (float)(1 + i));
        assert_true(t.importance[2 * N + i] == 1.0f); /* rounded as without statistics */
        assert_true(t.importance[3 * N + i] == (float)(1 + i));
    }
    /* GPTQ is asked for, importance is what there is: every expert gets the type that was asked for */
    const ht_calibration calibration = { s, HT_METHOD_GPTQ, 0.01, 1 };
    ht_tensor_rounding   r = { 0 };
    const ht_ctx         ctx = { .n_threads = 1, .isa = HT_ISA_SCALAR };
    assert_int_equal(ht_tensor_rounding_init(&r, &calibration, &t, NULL, NULL, NULL, HT_TYPE_q4_k, &ctx, &err), HT_STATUS_OK);
    assert_int_equal(r.method, HT_METHOD_IMATRIX);
    ht_tensor_rounding_deinit(&r);
    ht_tensor_statistics_deinit(&t);
    ht_statistics_close(s);
    ht_meta_free(meta);
    temp_folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_scales_are_finite), cmocka_unit_test(test_folding_is_exact), cmocka_unit_test(test_idle_expert) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
