/* formats/block_scales.c against the decoders: what it calls finite decodes to finite numbers, what it does not does not. */
#include <math.h>

#include "formats/block_scales.h"
#include "formats/decode.h"
#include "tests/ht_test.h"

enum { N_BLOCKS = 4000, MAX_BLOCK_BYTES = 512 };

static bool all_finite(const float* x, int n)
{
    for (int i = 0; i < n; i++) {
        if (!isfinite(x[i])) { return false; }
    }
    return true;
}

/* The 8-bit scales have a NaN code that ggml's decoders read as a number: there only the specification can be the witness. */
static bool decoder_hides_nan(ht_type type) { return type == HT_TYPE_mxfp4 || type == HT_TYPE_nvfp4; }

/* Q8_K and F64 overflow f32 with finite fields; Q8_1's s is not part of the value. */
static bool decoder_is_witness(ht_type type) { return type != HT_TYPE_q8_k && type != HT_TYPE_f64 && type != HT_TYPE_q8_1 && !decoder_hides_nan(type); }

static void test_random_blocks_agree_with_the_decoder(void** state)
{
    (void)state;
    uint64_t seed = 1;
    for (uint32_t id = 0; id < HT_TYPE_END; id++) {
        const ht_type_info* info = ht_type_get(id);
        if (!info || !decoder_is_witness(info->type)) { continue; }
        int n_bad = 0;
        for (int i = 0; i < N_BLOCKS; i++) {
            uint8_t block[MAX_BLOCK_BYTES];
            float   x[256];
            for (int k = 0; k < info->block_bytes; k++) { block[k] = (uint8_t)ht_test_random(&seed); }
            ht_decode_row_get(info->type)(block, x, info->block_elems);
            const bool finite = ht_blocks_find_nonfinite(info->type, block, 1) == 1;
            if (finite != all_finite(x, info->block_elems)) { fail_msg("%s block %d: scales %s", info->name, i, finite ? "finite" : "not finite"); }
            n_bad += !finite;
        }
        if (info->is_quantized || info->type == HT_TYPE_f16) { assert_in_range(n_bad, N_BLOCKS / 64, N_BLOCKS / 8); } /* 1 in 32 per half */
    }
}

static void test_8_bit_nan_codes(void** state)
{
    (void)state;
    uint8_t mx[17] = { 0xFE }, nv[36] = { 0 };
    assert_int_equal(ht_blocks_find_nonfinite(HT_TYPE_mxfp4, mx, 1), 1);
    mx[0] = 0xFF;
    assert_int_equal(ht_blocks_find_nonfinite(HT_TYPE_mxfp4, mx, 1), 0);
    for (int g = 0; g < 4; g++) {
        memset(nv, 0x7E, sizeof nv);
        assert_int_equal(ht_blocks_find_nonfinite(HT_TYPE_nvfp4, nv, 1), 1);
        nv[g] = 0x7F;
        assert_int_equal(ht_blocks_find_nonfinite(HT_TYPE_nvfp4, nv, 1), 0);
    }
}

static void test_q8_k_q8_1_and_f64(void** state)
{
    (void)state;
    uint8_t  k[292] = { 0 }, one[36] = { 0 };
    double   d[2] = { 1e300, -INFINITY };
    const float nan_value = NAN;
    assert_int_equal(ht_blocks_find_nonfinite(HT_TYPE_q8_k, k, 1), 1);
    memcpy(k, &nan_value, 4);
    assert_int_equal(ht_blocks_find_nonfinite(HT_TYPE_q8_k, k, 1), 0);
    one[3] = 0x7C;
    assert_int_equal(ht_blocks_find_nonfinite(HT_TYPE_q8_1, one, 1), 0);
    assert_int_equal(ht_blocks_find_nonfinite(HT_TYPE_f64, d, 2), 1);
}

/* The first of several, at any alignment, over all fields. */
static void test_first_block_is_found(void** state)
{
    (void)state;
    enum { N = 50 };
    static uint8_t bytes[N * 20 + 1];
    uint8_t*       blocks = bytes + 1; /* Q4_1: d, m, 16 bytes of codes */
    assert_int_equal(ht_blocks_find_nonfinite(HT_TYPE_q4_1, blocks, N), N);
    blocks[20 * 40 + 1] = 0x7C; /* d of block 40 = Inf  */
    assert_int_equal(ht_blocks_find_nonfinite(HT_TYPE_q4_1, blocks, N), 40);
    blocks[20 * 31 + 3] = 0xFE; /* m of block 31 = NaN */
    assert_int_equal(ht_blocks_find_nonfinite(HT_TYPE_q4_1, blocks, N), 31);
    assert_int_equal(ht_blocks_find_nonfinite(HT_TYPE_q4_1, blocks, 31), 31);
    assert_int_equal(ht_blocks_find_nonfinite(HT_TYPE_i32, blocks, N), N); /* integers are what they are */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_blocks_agree_with_the_decoder),
        cmocka_unit_test(test_8_bit_nan_codes),
        cmocka_unit_test(test_q8_k_q8_1_and_f64),
        cmocka_unit_test(test_first_block_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
