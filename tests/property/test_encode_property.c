/*
 * What every encoder must hold, over all types that can be encoded: the error bound of types.def, the same bytes from every instruction set,
 * zero, tiny, huge and tied values, importance of zero, 1e-30 and one single column. Seeded; a failure prints type and case.
 */
#include "tests/ht_test.h"

#include <math.h>

#include "formats/base/cpu.h"
#include "formats/block_iq4_nl.h"
#include "formats/block_mxfp4.h"
#include "formats/block_scales.h"
#include "formats/decode.h"
#include "quant/encode.h"
#include "quant/kernels/encode_variants.h"

enum { N_COLS = 1536, N_BYTES_MAX = N_COLS * 4 };

typedef struct encoded {
    uint8_t blocks[N_BYTES_MAX + 1]; /* and one that no encoder may touch */
    float   x[N_COLS];
} encoded;

static void fill_normal(float* x, int n, float sigma, uint64_t seed)
{
    for (int i = 0; i < n; i++) { x[i] = sigma * ht_test_normal(&seed); }
}

static void fill_importance(float* w, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) { w[i] = expf(1.5f * ht_test_normal(&seed)); }
}

static size_t row_bytes(const ht_type_info* info, int n_elems) { return (size_t)(n_elems / info->block_elems * info->block_bytes); }

static void encode(const ht_type_info* info, encoded* e, const float* x, int n_elems, const float* importance)
{
    memset(e, 0xA5, sizeof *e);
    ht_encode_row_get(info->type, ht_cpu_features())(x, e->blocks, n_elems, importance);
    ht_decode_row_get(info->type)(e->blocks, e->x, n_elems);
    assert_int_equal(e->blocks[row_bytes(info, n_elems)], 0xA5);
}

static double squared_error(const float* a, const float* b, const float* w, int n)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++) { sum += (w ? (double)w[i] : 1.0) * ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]); }
    return sum;
}

static void assert_scales_finite(const ht_type_info* info, const encoded* e, int n_elems)
{
    if (!info->is_quantized) { return; }
    const int64_t n_blocks = n_elems / info->block_elems;
    if (ht_blocks_find_nonfinite(info->type, e->blocks, n_blocks) < n_blocks) { fail_msg("%s: scale not finite", info->name); }
}

/* Runs `check` for every type with an encoder. */
static void for_each_encoder(void (*check)(const ht_type_info* info))
{
    for (uint32_t id = 0; id < HT_TYPE_END; id++) {
        const ht_type_info* info = ht_type_get(id);
        if (info && info->can_encode) { check(info); }
    }
}

/* --- error --------------------------------------------------------------------------------------------------------------- */

static void check_bound(const ht_type_info* info)
{
    float    x[N_COLS];
    encoded  e;
    double   lost = 0.0, total = 0.0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        fill_normal(x, N_COLS, 1.0f, seed);
        encode(info, &e, x, N_COLS, NULL);
        lost += squared_error(x, e.x, NULL, N_COLS);
        for (int i = 0; i < N_COLS; i++) { total += (double)x[i] * (double)x[i]; }
    }
    const double rel_rmse = sqrt(lost / total);
    printf("%-7s RMSE / RMS of normal rows %.6f, bound %.4f\n", info->name, rel_rmse, (double)info->rel_rmse_max);
    if (info->rel_rmse_max > 0.0f && !(rel_rmse <= (double)info->rel_rmse_max)) { fail_msg("%s: above the bound", info->name); }
}

static void test_normal_rows_within_bound(void** state)
{
    (void)state;
    for_each_encoder(check_bound);
}

static void check_importance_pays(const ht_type_info* info)
{
    float   x[N_COLS], w[N_COLS];
    encoded e;
    double  with = 0.0, without = 0.0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        fill_normal(x, N_COLS, 0.02f, seed);
        fill_importance(w, N_COLS, seed + 100);
        encode(info, &e, x, N_COLS, w);
        with += squared_error(x, e.x, w, N_COLS);
        encode(info, &e, x, N_COLS, NULL);
        without += squared_error(x, e.x, w, N_COLS);
    }
    if (!(with <= without)) { fail_msg("%s: weighted error %g with importance, %g without", info->name, with, without); }
}

static void test_importance_lowers_the_weighted_error(void** state)
{
    (void)state;
    for_each_encoder(check_importance_pays);
}

/* What a decoder gave is on the grid of some scale: encoding it anew may pick another, but hardly loses anything. */
static void check_idempotent(const ht_type_info* info)
{
    float   x[N_COLS];
    encoded first, second;
    fill_normal(x, N_COLS, 0.02f, 7);
    encode(info, &first, x, N_COLS, NULL);
    encode(info, &second, first.x, N_COLS, NULL);
    const double lost = squared_error(first.x, second.x, NULL, N_COLS), before = squared_error(x, first.x, NULL, N_COLS);
    const bool   exact = !info->is_quantized || info->type == HT_TYPE_q8_0 || info->type == HT_TYPE_mxfp4;
    printf("%-7s second encoding adds %.2g of the first one's squared error\n", info->name, before > 0.0 ? lost / before : 0.0);
    if (exact) { assert_memory_equal(first.blocks, second.blocks, row_bytes(info, N_COLS)); }
    else if (!(lost <= 0.05 * before)) { fail_msg("%s: second encoding loses %g, the first %g", info->name, lost, before); }
}

static void test_encoding_again_loses_little(void** state)
{
    (void)state;
    for_each_encoder(check_idempotent);
}

/* IQ4_NL and MXFP4 have uneven levels: no other code of the block's scale may be nearer than the one taken. */
static void check_nearest(const float* x, const float* decoded, const int8_t levels[16], float d)
{
    for (int i = 0; i < 32; i++) {
        for (int c = 0; c < 16; c++) {
            const float other = fabsf(x[i] - d * (float)levels[c]);
            assert_true(fabsf(x[i] - decoded[i]) <= other + 1e-5f * fabsf(x[i]));
        }
    }
}

static void test_uneven_levels_are_the_nearest(void** state)
{
    (void)state;
    const uint32_t features = ht_cpu_features();
    for (int isa = 0; isa < HT_ISA_COUNT; isa++) {
        if (!ht_isa_available((ht_isa)isa, features)) { continue; }
        const uint32_t  mask = ht_isa_features((ht_isa)isa) & features;
        float           x[N_COLS], decoded[N_COLS];
        ht_block_iq4_nl iq4[N_COLS / 32];
        ht_block_mxfp4  fp4[N_COLS / 32];
        fill_normal(x, N_COLS, 0.02f, 17);
        ht_encode_row_get(HT_TYPE_iq4_nl, mask)(x, iq4, N_COLS, NULL);
        ht_iq4_nl_decode_row_ref(iq4, decoded, N_COLS);
        for (int b = 0; b < N_COLS / 32; b++) { check_nearest(x + 32 * b, decoded + 32 * b, ht_iq4_values, ht_f16_to_f32(iq4[b].d)); }
        ht_encode_row_get(HT_TYPE_mxfp4, mask)(x, fp4, N_COLS, NULL);
        ht_mxfp4_decode_row_ref(fp4, decoded, N_COLS);
        for (int b = 0; b < N_COLS / 32; b++) { check_nearest(x + 32 * b, decoded + 32 * b, ht_fp4_values, ht_e8m0_half_to_f32(fp4[b].e)); }
    }
}

/* --- odd numbers (bad-inputs.md K5, 36) ------------------------------------------------------------------------------------- */

static void check_zeros(const ht_type_info* info)
{
    enum { ROW = 512 };
    float   x[ROW], alone[ROW], w[ROW];
    encoded e, f;
    fill_importance(w, ROW, 5);
    for (int weighted = 0; weighted < 2; weighted++) {
        const float* importance = weighted ? w : NULL;
        for (int kind = 0; kind < 4; kind++) { /* all 0; all -0; second half 0; one value only */
            fill_normal(x, ROW, 1.0f, 3);
            memcpy(alone, x, sizeof alone);
            for (int i = kind == 2 ? ROW / 2 : 0; i < ROW; i++) { x[i] = kind == 1 ? -0.0f : 0.0f; }
            if (kind == 3) { x[300] = -0.7f; }
            encode(info, &e, x, ROW, importance);
            assert_scales_finite(info, &e, ROW);
            for (int i = 0; i < ROW; i++) {
                const int block = i / info->block_elems;
                if (kind == 3 && block == 300 / info->block_elems) { continue; }
                if (x[i] == 0.0f && e.x[i] != 0.0f) { fail_msg("%s: zero decodes to %g (case %d)", info->name, (double)e.x[i], kind); }
            }
            if (kind == 2) { /* the block of numbers is as if its neighbour were not zero */
                encode(info, &f, alone, ROW, importance);
                assert_memory_equal(e.blocks, f.blocks, row_bytes(info, ROW / 2));
            }
            if (kind == 3) { assert_true(fabsf(e.x[300] + 0.7f) < 0.15f); }
        }
    }
}

static void test_zeros_stay_zero(void** state)
{
    (void)state;
    for_each_encoder(check_zeros);
}

static void check_magnitudes(const ht_type_info* info)
{
    enum { ROW = 256 };
    float   x[ROW], w[ROW];
    encoded e;
    for (int importance = 0; importance < 4; importance++) { /* none, ones, 1e-30, 1e30 */
        for (int i = 0; i < ROW; i++) { w[i] = importance == 1 ? 1.0f : importance == 2 ? 1e-30f : 1e30f; }
        for (int power = -45; power <= 38; power++) {
            float max = 0.0f;
            fill_normal(x, ROW, 1.0f, (uint64_t)(power + 100));
            for (int i = 0; i < ROW; i++) {
                x[i] = (float)((double)x[i] * 0.25 * pow(10.0, power));
                max  = fabsf(x[i]) > max ? fabsf(x[i]) : max;
            }
            if (!info->is_quantized && power > 4) { continue; } /* F16 overflows as IEEE 754 has it */
            encode(info, &e, x, ROW, importance ? w : NULL);
            assert_scales_finite(info, &e, ROW);
            for (int i = 0; i < ROW; i++) {
                const float err = fabsf(e.x[i] - x[i]);
                if (!(err <= max)) { fail_msg("%s 1e%d: %g decodes to %g", info->name, power, (double)x[i], (double)e.x[i]); }
            }
            if (power < -12 && info->is_quantized && info->type != HT_TYPE_mxfp4) {
                for (int i = 0; i < ROW; i++) { assert_true(e.x[i] == 0.0f); }
            }
        }
    }
}

static void test_tiny_and_huge_values(void** state)
{
    (void)state;
    for_each_encoder(check_magnitudes);
}

static void check_zero_importance(const ht_type_info* info)
{
    enum { ROW = 512 };
    float   x[ROW], w[ROW], ones[ROW];
    encoded e, plain;
    fill_normal(x, ROW, 1.0f, 11);
    for (int i = 0; i < ROW; i++) { ones[i] = 1.0f; }
    encode(info, &plain, x, ROW, ones);
    for (int kind = 0; kind < 3; kind++) { /* zero in the first half; everywhere; one column per block is not */
        for (int i = 0; i < ROW; i++) { w[i] = kind == 0 ? (float)(i >= ROW / 2) : kind == 1 ? 0.0f : (float)(i % 32 == 5); }
        encode(info, &e, x, ROW, w);
        assert_scales_finite(info, &e, ROW);
        if (kind < 2) { assert_memory_equal(e.blocks, plain.blocks, row_bytes(info, ROW)); }
        for (int i = 0; i < ROW; i++) { assert_true(fabsf(e.x[i]) < 16.0f); }
    }
}

static void test_zero_importance_is_as_ones(void** state)
{
    (void)state;
    for_each_encoder(check_zero_importance);
}

/* Equal values, alternating signs, values half way between the levels of a simple scale, integers. */
static void check_ties(const ht_type_info* info)
{
    enum { ROW = 256 };
    float   x[ROW];
    encoded e;
    for (int kind = 0; kind < 5; kind++) {
        for (int i = 0; i < ROW; i++) {
            const float table[5] = { 0.375f, -3.0f, i % 2 ? 1.0f : -1.0f, (float)(i % 16 - 8) + 0.5f, (float)(i % 7 - 3) };
            x[i] = table[kind];
        }
        encode(info, &e, x, ROW, NULL);
        assert_scales_finite(info, &e, ROW);
        double total = 0.0;
        for (int i = 0; i < ROW; i++) { total += (double)x[i] * (double)x[i]; }
        const double rel_rmse = sqrt(squared_error(x, e.x, NULL, ROW) / total);
        if (!(rel_rmse < 0.25)) { /* what four levels leave of 16 equally spaced values */
            fail_msg("%s: ties, case %d: %g", info->name, kind, rel_rmse);
        }
    }
}

static void test_ties(void** state)
{
    (void)state;
    for_each_encoder(check_ties);
}

/* --- instruction sets -------------------------------------------------------------------------------------------------------- */

static const struct {
    ht_type          type;
    ht_encode_row_fn encode;
} references[] = {
#define HT_TYPE_HALF(stem, id, name, elems, bytes) { HT_TYPE_##stem, ht_##stem##_encode_row_ref },
#define HT_TYPE_CODEC(stem, id, name, elems, bytes, dot, fallback, rel_rmse_max) HT_TYPE_HALF(stem, id, name, elems, bytes)
#include "formats/types.def"
};

/* Rows of one block more and less than a tile, of all magnitudes, with outliers and holes. */
static void test_every_isa_gives_the_same_bytes(void** state)
{
    (void)state;
    static const int lengths[] = { 256, 512, 768, 1280, 1536 };
    const uint32_t   features  = ht_cpu_features();
    int              n_compared = 0;
    for (size_t k = 0; k < sizeof references / sizeof references[0]; k++) {
        const ht_type_info* info = ht_type_get(references[k].type);
        for (int isa = 0; isa < HT_ISA_COUNT; isa++) {
            if (!ht_isa_available((ht_isa)isa, features)) { continue; }
            const ht_encode_row_fn variant = ht_encode_row_get(info->type, ht_isa_features((ht_isa)isa) & features);
            if (variant == references[k].encode) { continue; }
            n_compared++;
            for (uint64_t seed = 1; seed <= 30; seed++) {
                float    x[N_COLS], w[N_COLS];
                uint8_t  expected[N_BYTES_MAX] = { 0 }, got[N_BYTES_MAX] = { 0 };
                uint64_t random = seed;
                const int n = seed % 6 == 5 ? info->block_elems * 3 : lengths[seed % 5];
                fill_normal(x, N_COLS, powf(10.0f, (float)(seed % 9) - 6.0f), seed);
                fill_importance(w, N_COLS, seed + 50);
                for (int i = 0; i < N_COLS; i++) {
                    const uint64_t r = ht_test_random(&random) % 200;
                    if (r == 0) { x[i] *= 30.0f; }
                    if (r < 20 && seed % 3 == 0) { x[i] = 0.0f; }
                    if (seed % 7 == 0) { x[i] = rintf(x[i] * 4.0f) * 0.25f; }
                    if (r > 190 && seed % 2) { w[i] = 0.0f; }
                }
                for (int weighted = 0; weighted < 2; weighted++) {
                    references[k].encode(x, expected, n, weighted ? w : NULL);
                    variant(x, got, n, weighted ? w : NULL);
                    if (memcmp(expected, got, row_bytes(info, n)) != 0) {
                        fail_msg("%s on %s differs: seed %d, %d elements, %s", info->name, ht_isa_name((ht_isa)isa), (int)seed, n,
                                 weighted ? "weighted" : "plain");
                    }
                }
            }
        }
    }
    printf("%d variants compared\n", n_compared);
    if (n_compared == 0) { skip(); }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_normal_rows_within_bound),
        cmocka_unit_test(test_importance_lowers_the_weighted_error),
        cmocka_unit_test(test_encoding_again_loses_little),
        cmocka_unit_test(test_uneven_levels_are_the_nearest),
        cmocka_unit_test(test_zeros_stay_zero),
        cmocka_unit_test(test_tiny_and_huge_values),
        cmocka_unit_test(test_zero_importance_is_as_ones),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_every_isa_gives_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
