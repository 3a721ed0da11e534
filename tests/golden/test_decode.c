/*
 * Every block decoder against the recorded output of another implementation, bit for bit.
 *
 * The input is not stored: 4096 blocks per type are drawn from splitmix64 (state 0x5eed0000 + type id, eight bytes a draw, little-endian), then
 * bits are cleared in each block so that its scales are finite. What is stored is the SHA-256 of the decoded f32 values.
 * Source of the hashes: llama.cpp 0c1e57098 (ggml 0.25.3, ggml-base on x86-64 without FMA), to_float of its type traits on the same stream;
 * the Python package gguf gives the same bits for all types that it decodes.
 */
#include <math.h>

#include "formats/base/file.h"
#include "formats/block_q8_1.h"
#include "formats/block_q8_k.h"
#include "formats/decode.h"
#include "tests/ht_test.h"

enum { N_BLOCKS = 4096 };

/* Bytes of a block that are masked to keep the scales finite: the high byte of a half, or a whole 8-bit scale. */
typedef struct golden {
    ht_type     type;
    uint8_t     mask;
    int         n_masked, masked[4];
    const char* sha256;
} golden;

static const golden goldens[] = {
    { HT_TYPE_q4_0,      0xBF, 1, { 1 },           "fe48566551cc1929b3173e5ab1813e2c88e510657d9d2c864c27612676afefa8" },
    { HT_TYPE_q4_1,      0xBF, 2, { 1, 3 },        "ddc97ab50f3ec7c3fb68f70206f603faf1e73a8f64637f94eaf047997e900d1d" },
    { HT_TYPE_q5_0,      0xBF, 1, { 1 },           "3940772ad2239c9abff7b1966d2e9d93249a96a604c6da888b012fca3b9dd029" },
    { HT_TYPE_q5_1,      0xBF, 2, { 1, 3 },        "61b01c14a3a83ffd45c2f8c3d723507246b7f343f4e3dee217468911918c5d0e" },
    { HT_TYPE_q8_0,      0xBF, 1, { 1 },           "7c9670ce2851b992326045311fc3b400e02d2d653a5e37efd7976f60a05166b8" },
    { HT_TYPE_q2_k,      0xBF, 2, { 81, 83 },      "18d7b17e480e07c410ff2a5c5d18f4f2accb8208f51c65c07ecade308570c252" },
    { HT_TYPE_q3_k,      0xBF, 1, { 109 },         "dec5e07c8105a166035441b01f83ddb6dffad2400840f129f3766feb8ef23dc9" },
    { HT_TYPE_q4_k,      0xBF, 2, { 1, 3 },        "d015d7406770b6031410ac7e12f368b06d11a8f2d3f6f95e76da9b741a49ae3a" },
    { HT_TYPE_q5_k,      0xBF, 2, { 1, 3 },        "7388b5f6a39f09e4419505f329e6ff93608724d3a94d5f8de5d7fc62805ba018" },
    { HT_TYPE_q6_k,      0xBF, 1, { 209 },         "bf76fbe430ab681c1aea7796a880108ac550182ec2355605d298b030e474c0f1" },
    { HT_TYPE_iq4_nl,    0xBF, 1, { 1 },           "d5f1bbc7c243c049b5e1faef7e25cda1a15535da89d69abeebcd13ce8197b3d8" },
    { HT_TYPE_iq4_xs,    0xBF, 1, { 1 },           "93a0c43124f3146efaf5474b7602dacca4d2653d86705eb566860dcdd087c72c" },
    { HT_TYPE_iq2_xxs,   0xBF, 1, { 1 },           "6423c62c40d40c8f0a4ff6fb84f90d6c2cdeafd6bf46701cb78be10ad3b097cb" },
    { HT_TYPE_iq2_xs,    0xBF, 1, { 1 },           "401af91dd520e0cccb72557719d873f1b4c8bb2a5c234bb712ba6d79922e593f" },
    { HT_TYPE_iq2_s,     0xBF, 1, { 1 },           "917c4475c435ccdddd8070bd5ce0333fc5b02118917a2526fdf9b2ab14c5975d" },
    { HT_TYPE_iq3_xxs,   0xBF, 1, { 1 },           "9d668cd448b5d557fb7e4c763e553eae8611414fe3bf084981ed0e15707ca8d3" },
    { HT_TYPE_iq3_s,     0xBF, 1, { 1 },           "aa61d6ecf9581d7bff08bf22a106b632bd71dbc1824af82f0352291902abb639" },
    { HT_TYPE_iq1_s,     0xBF, 1, { 1 },           "e82fd2fce9f829df0ed8f52d76ac09d23b7fea016e8a898c1dc2513957088a48" },
    { HT_TYPE_iq1_m,     0xBF, 1, { 55 },          "f3c9e189772433fa216eefd4ac525999f46a90e17c2e2925465f937592e6129f" },
    { HT_TYPE_tq1_0,     0xBF, 1, { 53 },          "22bc0bc0f1e9dfde0455d788cc948321dbab0de6a9ec4e6bc6c86dc01948dfcf" },
    { HT_TYPE_tq2_0,     0xBF, 1, { 65 },          "c18c260d89bcb71205e0a87332cca1e7fcf11d00b1d1a12be798031d3c7a35b1" },
    { HT_TYPE_mxfp4,     0x7F, 1, { 0 },           "5128282ffe034287a4bf104e41627f92411efd40f5bcd2d58c10e38a7e89f583" },
    { HT_TYPE_nvfp4,     0x7F, 4, { 0, 1, 2, 3 },  "db4f632b74f1876eda6b6dc468a808bc92c6e25a13abc056a5c17932c043213d" },
    { HT_TYPE_q1_0,      0xBF, 1, { 1 },           "346159ed5e654337884482a5afd2948da5516b3435b3e16bd9bc27de089273d4" },
    { HT_TYPE_q2_0,      0xBF, 1, { 1 },           "838f71fc52ca358e6fa64fdda54ffe67457cae9dfb46a07d87cf2766aaef5a63" },
};

static void fill(uint8_t* blocks, size_t n_bytes, const golden* g, size_t block_bytes)
{
    uint64_t state = 0x5eed0000u + (uint64_t)g->type;
    for (size_t i = 0; i < n_bytes; i += 8) {
        const uint64_t bits = ht_test_random(&state);
        memcpy(blocks + i, &bits, n_bytes - i < 8 ? n_bytes - i : 8);
    }
    for (uint8_t* block = blocks; block < blocks + n_bytes; block += block_bytes) {
        for (int k = 0; k < g->n_masked; k++) { block[g->masked[k]] &= g->mask; }
    }
}

static void recorded_blocks_decode_bit_exactly(void** state)
{
    (void)state;
    int n_wrong = 0;
    for (size_t k = 0; k < sizeof goldens / sizeof *goldens; k++) {
        const golden*       g       = &goldens[k];
        const ht_type_info* info    = ht_type_get((uint32_t)g->type);
        const size_t        n_bytes = (size_t)(N_BLOCKS * info->block_bytes), n_elems = (size_t)(N_BLOCKS * info->block_elems);
        /* one byte in front: decoders take blocks at any alignment */
        uint8_t* raw = malloc(n_bytes + 1);
        float*   out = malloc(n_elems * sizeof *out);
        assert_non_null(raw);
        assert_non_null(out);
        fill(raw + 1, n_bytes, g, (size_t)info->block_bytes);
        ht_decode_row_get(g->type)(raw + 1, out, (int64_t)n_elems);
        char hex[65];
        assert_int_equal(ht_sha256_hex(hex, out, n_elems * sizeof *out, NULL), HT_STATUS_OK);
        if (strcmp(hex, g->sha256) != 0) {
            print_error("%s: decoded values hash to %s\n", info->name, hex);
            n_wrong++;
        }
        free(raw);
        free(out);
    }
    assert_int_equal(n_wrong, 0);
}

static void every_type_has_a_decoder_and_quantized_ones_a_recording(void** state)
{
    (void)state;
    for (uint32_t id = 0; id < HT_TYPE_END; id++) {
        const ht_type_info* info = ht_type_get(id);
        if (!info) { continue; }
        assert_non_null(ht_decode_row_get(info->type));
        bool found = !info->is_quantized || id == HT_TYPE_q8_1 || id == HT_TYPE_q8_k; /* activation forms: tested below */
        for (size_t k = 0; k < sizeof goldens / sizeof *goldens; k++) { found = found || goldens[k].type == info->type; }
        if (!found) { fail_msg("%s has no recorded decode", info->name); }
    }
}

static void activation_forms_decode(void** state)
{
    (void)state;
    float         out[256];
    ht_block_q8_1 b1 = { .d = ht_f32_to_f16(0.25f), .s = 0xFFFF, .qs = { -128, 127, 3 } };
    ht_q8_1_decode_row_ref(&b1, out, 32);
    assert_true(out[0] == -32.0f && out[1] == 31.75f && out[2] == 0.75f && out[31] == 0.0f);

    ht_block_q8_k bk = { .d = -0.001f, .qs = { -127, 1 }, .bsums = { 99 } };
    bk.qs[255]       = 7;
    ht_q8_k_decode_row_ref(&bk, out, 256);
    assert_true(out[0] == -0.001f * -127.0f && out[1] == -0.001f && out[2] == 0.0f && out[255] == -0.001f * 7.0f);
}

/* A value of a plain type, stored at an odd address, decodes to the nearest f32. */
#define CHECK_PLAIN(stem, c_type, value, expected)                           \
    do {                                                                     \
        unsigned char bytes[1 + 2 * sizeof(c_type)];                         \
        const c_type  v[2] = { (c_type)0, (value) };                         \
        float         out[2];                                                \
        memcpy(bytes + 1, v, sizeof v);                                      \
        ht_decode_row_get(HT_TYPE_##stem)(bytes + 1, out, 2);                \
        assert_true(out[0] == 0.0f && out[1] == (expected));                 \
    } while (0)

static void plain_types_decode(void** state)
{
    (void)state;
    CHECK_PLAIN(f32, float, -1.5e-42f, -1.5e-42f);
    CHECK_PLAIN(f64, double, 0.1, 0.1f);
    CHECK_PLAIN(f64, double, -1e300, -INFINITY);
    CHECK_PLAIN(f16, uint16_t, 0xC248, -3.140625f);
    CHECK_PLAIN(bf16, uint16_t, 0xC049, -3.140625f);
    CHECK_PLAIN(i8, int8_t, -128, -128.0f);
    CHECK_PLAIN(i16, int16_t, -32768, -32768.0f);
    CHECK_PLAIN(i32, int32_t, 16777217, 16777216.0f);
    CHECK_PLAIN(i64, int64_t, INT64_MIN, -0x1p63f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_blocks_decode_bit_exactly),
        cmocka_unit_test(every_type_has_a_decoder_and_quantized_ones_a_recording),
        cmocka_unit_test(activation_forms_decode),
        cmocka_unit_test(plain_types_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
