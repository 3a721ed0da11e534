/* quant/absmax and quant/error_metrics: small cases by hand, prices, the order of the forms on rows with outliers, odd numbers. */
#include "tests/ht_test.h"

#include <math.h>

#include "quant/absmax.h"
#include "quant/error_metrics.h"

enum { N_ROWS = 16, N_COLS = 320 };

static void test_prices(void** state)
{
    (void)state;
    assert_true(ht_absmax_bits_per_weight(ht_absmax_find("int8-tensor"), 4, 64) == 8.0 + 16.0 / 256.0);
    assert_true(ht_absmax_bits_per_weight(ht_absmax_find("int8-row"), 4, 64) == 8.25);
    assert_true(ht_absmax_bits_per_weight(ht_absmax_find("int4-g32"), 4, 64) == 4.5);
    assert_true(ht_absmax_bits_per_weight(ht_absmax_find("nf4-g64"), 4, 64) == 4.25);
    assert_true(ht_absmax_bits_per_weight(ht_absmax_find("int4-g128"), 2, 192) == 4.0 + 16.0 * 4.0 / 384.0); /* ragged: 128 + 64 */
    assert_null(ht_absmax_find("int3-row"));
}

static void test_by_hand(void** state)
{
    (void)state;
    const float x[8] = { 7.0f, -3.4f, 2.5f, 0.49f, -1.5f, 0.0f, -7.0f, 3.5f };
    const float int4[8] = { 7.0f, -3.0f, 2.0f, 0.0f, -2.0f, 0.0f, -7.0f, 4.0f }; /* d = 1, ties to even */
    float       out[8];
    assert_int_equal(ht_absmax_round_trip(ht_absmax_find("int4-row"), x, 1, 8, out, NULL), HT_STATUS_OK);
    for (int i = 0; i < 8; i++) { assert_true(out[i] == int4[i]); }

    const float y[4] = { 2.0f, -1.3f, 0.16f, 0.0f }; /* d = 2; -0.65 -> -0.6961928, 0.08 -> 0.0795803 */
    assert_int_equal(ht_absmax_round_trip(ht_absmax_find("nf4-g64"), y, 1, 4, out, NULL), HT_STATUS_OK);
    assert_true(out[0] == 2.0f && fabsf(out[1] + 1.3923856f) < 1e-6f && fabsf(out[2] - 0.1591606f) < 1e-6f && out[3] == 0.0f);

    /* rows do not share a scale; a tensor's do */
    const float z[4] = { 100.0f, 1.0f, 0.01f, 0.01f };
    assert_int_equal(ht_absmax_round_trip(ht_absmax_find("int8-row"), z, 2, 2, out, NULL), HT_STATUS_OK);
    assert_true(fabsf(out[2] - 0.01f) < 1e-5f);
    assert_int_equal(ht_absmax_round_trip(ht_absmax_find("int8-tensor"), z, 2, 2, out, NULL), HT_STATUS_OK);
    assert_true(out[2] == 0.0f);
}

static double form_error(const char* name, const float* x)
{
    static float     out[N_ROWS * N_COLS];
    ht_error_metrics m = { 0 };
    assert_int_equal(ht_absmax_round_trip(ht_absmax_find(name), x, N_ROWS, N_COLS, out, NULL), HT_STATUS_OK);
    ht_error_metrics_add(&m, x, out, NULL, N_ROWS * N_COLS);
    return ht_error_relative(&m);
}

static void test_finer_groups_lose_less(void** state)
{
    (void)state;
    static float x[N_ROWS * N_COLS];
    uint64_t     seed = 3;
    for (int i = 0; i < N_ROWS * N_COLS; i++) { x[i] = ht_test_normal(&seed) * (ht_test_random(&seed) % 500 == 0 ? 20.0f : 1.0f); }
    static const char* const order[2][5] = { { "int8-tensor", "int8-row", "int8-g128", "int8-g64", "int8-g32" },
                                             { "int4-tensor", "int4-row", "int4-g128", "int4-g64", "int4-g32" } };
    for (int c = 0; c < 2; c++) {
        for (int k = 1; k < 5; k++) { assert_true(form_error(order[c][k], x) < form_error(order[c][k - 1], x)); }
    }
    assert_true(form_error("int8-g32", x) < 0.01);
    assert_true(form_error("nf4-g64", x) < form_error("int4-g64", x));
}

static void test_odd_numbers(void** state)
{
    (void)state;
    const float zeros[4] = { 0.0f, -0.0f, 0.0f, 0.0f }, tiny[4] = { 1e-30f, 1e-45f, -1e-20f, 0.0f }, huge[4] = { 3e38f, -1e38f, 1.0f, 0.0f };
    const float bad[4] = { 1.0f, 2.0f, NAN, 4.0f };
    float       out[4] = { 9.0f, 9.0f, 9.0f, 9.0f };
    ht_error    err    = HT_ERROR_INIT;
    for (const ht_absmax_form* form = ht_absmax_forms; form->name; form++) {
        assert_int_equal(ht_absmax_round_trip(form, bad, 2, 2, out, &err), HT_STATUS_NUMERIC);
        assert_true(out[0] == 9.0f);
    }
    assert_non_null(strstr(err.message, "row 1, column 0"));
    for (const ht_absmax_form* form = ht_absmax_forms; form->name; form++) {
        assert_int_equal(ht_absmax_round_trip(form, zeros, 2, 2, out, NULL), HT_STATUS_OK);
        for (int i = 0; i < 4; i++) { assert_true(out[i] == 0.0f); }
        assert_int_equal(ht_absmax_round_trip(form, tiny, 2, 2, out, NULL), HT_STATUS_OK);
        for (int i = 0; i < 4; i++) { assert_true(out[i] == 0.0f); }
        assert_int_equal(ht_absmax_round_trip(form, huge, 2, 2, out, NULL), HT_STATUS_OK);
        for (int i = 0; i < 4; i++) { assert_true(isfinite(out[i])); }
        assert_int_equal(ht_absmax_round_trip(form, huge, 0, 2, out, NULL), HT_STATUS_ARG);
    }
}

static void test_error_metrics(void** state)
{
    (void)state;
    const float      x[3] = { 3.0f, 4.0f, 0.0f }, y[3] = { 3.0f, 2.0f, 1.0f }, w[3] = { 1.0f, 0.5f, 2.0f }, none[3] = { 0 };
    ht_error_metrics m = { 0 }, weighted = { 0 }, parts = { 0 }, part = { 0 }, zero = { 0 };
    ht_error_metrics_add(&m, x, y, NULL, 3);
    assert_true(fabs(ht_error_rmse(&m) - sqrt(5.0 / 3.0)) < 1e-15);
    assert_true(fabs(ht_error_relative(&m) - sqrt(5.0 / 25.0)) < 1e-15);
    assert_true(fabs(ht_error_cosine(&m) - 17.0 / (5.0 * sqrt(14.0))) < 1e-15);
    assert_true(m.max_err == 2.0 && m.n_elems == 3);
    ht_error_metrics_add(&weighted, x, y, w, 3);
    assert_true(fabs(ht_error_rmse(&weighted) - sqrt(4.0 / 3.5)) < 1e-15);
    ht_error_metrics_add(&parts, x, y, NULL, 1);
    ht_error_metrics_add(&part, x + 1, y + 1, NULL, 2);
    ht_error_metrics_merge(&parts, &part);
    assert_true(ht_error_rmse(&parts) == ht_error_rmse(&m) && parts.max_err == 2.0 && parts.n_elems == 3);
    assert_true(ht_error_rmse(&zero) == 0.0 && ht_error_relative(&zero) == 0.0 && ht_error_cosine(&zero) == 1.0);
    ht_error_metrics_add(&zero, x, none, NULL, 3);
    assert_true(ht_error_relative(&zero) == 1.0 && ht_error_cosine(&zero) == 0.0);
    const float bad[3] = { 3.0f, NAN, 0.0f };
    ht_error_metrics_add(&m, x, bad, NULL, 3);
    assert_true(isnan(ht_error_rmse(&m)) && isnan(ht_error_relative(&m)) && isnan(m.max_err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prices),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_finer_groups_lose_less),
        cmocka_unit_test(test_odd_numbers),
        cmocka_unit_test(test_error_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
