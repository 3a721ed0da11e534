/*
 * Every encoder's error on one fixed input is at or below the reference encoder's, with and without importance.
 * data/encode_in.f32: 32 x 1024, normal * 0.02 with 0.1% outliers x30; data/encode_importance.f32: one weight per column, exp(1.5 * normal).
 */
#include "tests/ht_test.h"

#include "formats/base/cpu.h"
#include "formats/decode.h"
#include "quant/encode.h"

enum { N_ROWS = 32, N_COLS = 1024 };

/*
 * sum w (x - decoded)^2 / sum w x^2 of ggml_quantize_chunk of llama.cpp 0c1e57098 (ggml 0.25.3, built without FMA) on the same input;
 * `relmse` and `relwmse_imp` of the recorded types.json. F16 and BF16: half a unit in the last place, squared.
 */
static const struct {
    ht_type type;
    double  error, error_weighted;
} reference[] = {
    { HT_TYPE_f32, 0.0, 0.0 },
    { HT_TYPE_f16, 0x1p-22, 0x1p-22 },
    { HT_TYPE_bf16, 0x1p-18, 0x1p-18 },
    { HT_TYPE_q4_0, 0.0110300153, 0.0112476619 },
    { HT_TYPE_q4_1, 0.008717779, 0.0043288332 },
    { HT_TYPE_q5_0, 0.00378589086, 0.00367935421 },
    { HT_TYPE_q5_1, 0.00201122492, 0.00123931194 },
    { HT_TYPE_q8_0, 7.55490209e-05, 8.96641669e-05 },
    { HT_TYPE_q2_k, 0.0685498892, 0.0474049954 },
    { HT_TYPE_q3_k, 0.0186899309, 0.0169912997 },
    { HT_TYPE_q4_k, 0.0061426109, 0.00451598482 },
    { HT_TYPE_q5_k, 0.00187319019, 0.00149114619 },
    { HT_TYPE_q6_k, 0.000656431005, 0.000534269808 },
    { HT_TYPE_iq4_nl, 0.00832713157, 0.00808640342 },
    { HT_TYPE_iq4_xs, 0.00853438974, 0.00854264702 },
    { HT_TYPE_mxfp4, 0.0247249667, 0.0200435113 },
};

static double relative_error(const ht_type_info* info, const float* x, const float* importance)
{
    const ht_encode_row_fn encode = ht_encode_row_get(info->type, ht_cpu_features());
    const ht_decode_row_fn decode = ht_decode_row_get(info->type);
    float   decoded[N_COLS];
    uint8_t blocks[N_COLS * sizeof(float)];
    double  lost = 0.0, total = 0.0;
    assert_non_null(encode);
    for (int r = 0; r < N_ROWS; r++) {
        const float* row = x + r * N_COLS;
        encode(row, blocks, N_COLS, importance);
        decode(blocks, decoded, N_COLS);
        for (int i = 0; i < N_COLS; i++) {
            const double w = importance ? (double)importance[i] : 1.0, e = (double)row[i] - (double)decoded[i];
            lost += w * e * e;
            total += w * (double)row[i] * (double)row[i];
        }
    }
    return lost / total;
}

static void test_error_at_or_below_reference(void** state)
{
    (void)state;
    size_t n_x = 0, n_importance = 0;
    float* x          = ht_test_load(ht_test_source("tests/golden/data/encode_in.f32"), &n_x);
    float* importance = ht_test_load(ht_test_source("tests/golden/data/encode_importance.f32"), &n_importance);
    assert_int_equal(n_x, N_ROWS * N_COLS * sizeof *x);
    assert_int_equal(n_importance, N_COLS * sizeof *importance);
    int n_worse = 0;
    for (size_t k = 0; k < sizeof reference / sizeof reference[0]; k++) {
        const ht_type_info* info  = ht_type_get(reference[k].type);
        const double        plain = relative_error(info, x, NULL), weighted = relative_error(info, x, importance);
        printf("%-7s %.6g (reference %.6g)   weighted %.6g (%.6g)\n", info->name, plain, reference[k].error, weighted,
               reference[k].error_weighted);
        n_worse += !(plain <= reference[k].error) + !(weighted <= reference[k].error_weighted);
    }
    free(x);
    free(importance);
    assert_int_equal(n_worse, 0);
}

/* A type that can be encoded but has no reference figure above would go unchecked. */
static void test_every_encoder_has_a_reference(void** state)
{
    (void)state;
    for (uint32_t id = 0; id < HT_TYPE_END; id++) {
        const ht_type_info* info = ht_type_get(id);
        if (!info || !info->can_encode) { continue; }
        int found = 0;
        for (size_t k = 0; k < sizeof reference / sizeof reference[0]; k++) { found += reference[k].type == info->type; }
        assert_int_equal(found, 1);
    }
    assert_null(ht_encode_row_get(HT_TYPE_q8_1, ht_cpu_features()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_at_or_below_reference),
        cmocka_unit_test(test_every_encoder_has_a_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
