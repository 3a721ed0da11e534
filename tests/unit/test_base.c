/* formats/base: status lines, half floats (all 65536 values), files, checked arithmetic. */
#include "tests/ht_test.h"

#include <math.h>
#include <unistd.h>
#include <zlib.h>

#include "formats/base/checked.h"
#include "formats/base/cpu.h"
#include "formats/base/file.h"
#include "formats/base/half.h"
#include "formats/types.h"

static void test_error_line_names_everything(void** state)
{
    (void)state;
    char     line[512];
    ht_error err = HT_ERROR_INIT;
    assert_int_equal(ht_fail_at(&err, HT_STATUS_FORMAT, 0x1f40, "%d rows", 6), HT_STATUS_FORMAT);
    ht_fail(&err, HT_STATUS_IO, "an outer frame must not overwrite the cause");
    ht_error_set_tensor(&err, "blk.3.attn_q.weight");
    ht_error_set_file(&err, "mo\ndel\xff.gguf");
    assert_string_equal(ht_error_format(&err, line, sizeof line),
                        "mo\\x0adel\\xff.gguf: blk.3.attn_q.weight @ 0x1f40: 6 rows (format)");
}

static void test_utf8_clean_keeps_what_json_can_escape(void** state)
{
    (void)state;
    char buf[64];
    assert_string_equal(ht_utf8_clean("a\nb\xff\xc3\xa9", buf, sizeof buf), "a\nb\\xff\xc3\xa9");
    assert_string_equal(ht_printable("a\nb\xff\xc3\xa9", buf, sizeof buf), "a\\x0ab\\xff\xc3\xa9");
}

static void test_f16_round_trip_and_ties(void** state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = ht_f16_to_f32((uint16_t)h);
        if (isnan(f)) { assert_true(isnan(ht_f16_to_f32(ht_f32_to_f16(f)))); }
        else { assert_int_equal(ht_f32_to_f16(f), h); }
    }
    assert_int_equal(ht_f32_to_f16(65519.0f), 0x7BFF);
    assert_int_equal(ht_f32_to_f16(65520.0f), 0x7C00);
    assert_int_equal(ht_f32_to_f16(0x1p-25f), 0);               /* tie to even: 0   */
    assert_int_equal(ht_f32_to_f16(0x1.000002p-25f), 1);        /* just above       */
    assert_int_equal(ht_f32_to_f16(1.0f + 0x1p-11f), 0x3C00);   /* tie to even down */
    assert_int_equal(ht_f32_to_f16(1.0f + 0x3p-11f), 0x3C02);   /* tie to even up   */
}

static void test_edge_rows_match_recorded_halves(void** state)
{
    (void)state;
    size_t n = 0;
    if (!ht_test_shared("oracle/golden/edge.f32")) { skip(); }
    float*    x    = ht_test_load(ht_test_shared("oracle/golden/edge.f32"), &n);
    uint16_t* f16  = ht_test_load(ht_test_shared("oracle/golden/edge.f16"), NULL);
    uint16_t* bf16 = ht_test_load(ht_test_shared("oracle/golden/edge.bf16"), NULL);
    for (size_t i = 0; i < n / sizeof *x; i++) {
        assert_int_equal(ht_f32_to_f16(x[i]), f16[i]);
        assert_int_equal(ht_f32_to_bf16(x[i]), bf16[i]);
    }
    free(x);
    free(f16);
    free(bf16);
}

static void test_small_floats(void** state)
{
    (void)state;
    assert_true(ht_f8_e4m3_to_f32(0x38) == 1.0f && ht_f8_e4m3_to_f32(0x7E) == 448.0f && ht_f8_e4m3_to_f32(0x81) == -0x1p-9f);
    assert_true(isnan(ht_f8_e4m3_to_f32(0x7F)) && isnan(ht_f8_e4m3_to_f32(0xFF)));
    assert_true(ht_f8_e5m2_to_f32(0x3C) == 1.0f && ht_f8_e5m2_to_f32(0x01) == 0x1p-16f && isinf(ht_f8_e5m2_to_f32(0x7C)));
    assert_true(ht_e8m0_to_f32(127) == 1.0f && ht_e8m0_to_f32(0) == 0x1p-127f && isnan(ht_e8m0_to_f32(255)));
}

static void test_file_reads_are_bounded(void** state)
{
    (void)state;
    char     path[] = "/tmp/ht-test-XXXXXX", buf[8];
    const int fd    = mkstemp(path);
    ht_error err    = HT_ERROR_INIT;
    ht_file* file   = NULL;
    assert_int_equal(write(fd, "0123456789", 10), 10);
    close(fd);
    assert_int_equal(ht_file_open(&file, path, &err), HT_STATUS_OK);
    assert_int_equal(ht_file_read_at(file, 2, buf, 8, &err), HT_STATUS_OK);
    assert_memory_equal(buf, "23456789", 8);
    assert_int_equal(ht_file_read_at(file, 3, buf, 8, &err), HT_STATUS_BOUNDS);
    ht_error_clear(&err);
    assert_int_equal(ht_file_read_at(file, UINT64_MAX - 3, buf, 8, &err), HT_STATUS_BOUNDS);
    ht_file_close(file);
    unlink(path);
}

static void test_text_plain_gzip_and_cut(void** state)
{
    (void)state;
    char     path[] = "/tmp/ht-test-XXXXXX";
    ht_error err    = HT_ERROR_INIT;
    char*    text   = NULL;
    size_t   n      = 0;
    close(mkstemp(path));
    gzFile gz = gzopen(path, "wb");
    for (int i = 0; i < 50000; i++) { gzprintf(gz, "line %d\n", i * 7919); }
    gzclose(gz);
    assert_int_equal(ht_text_read(&text, &n, path, 1u << 24, &err), HT_STATUS_OK);
    assert_int_equal(strncmp(text, "line 0\nline 7919\n", 17), 0);
    assert_int_equal(text[n], '\0');
    free(text);
    text = NULL;
    struct stat info;
    stat(path, &info);
    assert_int_equal(truncate(path, info.st_size / 2), 0);
    assert_int_equal(ht_text_read(&text, &n, path, 1u << 24, &err), HT_STATUS_FORMAT);
    assert_null(text);
    unlink(path);
}

static void test_output_appears_only_when_committed(void** state)
{
    (void)state;
    char         folder[] = "/tmp/ht-test-XXXXXX", path[64], command[128];
    ht_error     err      = HT_ERROR_INIT;
    ht_out_file* out      = NULL;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x", folder);
    assert_int_equal(ht_out_file_create(&out, path, 4, false, &err), HT_STATUS_OK);
    assert_int_equal(ht_out_file_write_at(out, 0, "abcd", 4, &err), HT_STATUS_OK);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(ht_out_file_commit(out, &err), HT_STATUS_OK);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(ht_out_file_create(&out, path, 4, false, &err), HT_STATUS_ARG); /* exists */
    ht_error_clear(&err);
    assert_int_equal(ht_out_file_create(&out, path, 4, true, &err), HT_STATUS_OK);
    ht_out_file_discard(out);
    ht_error_clear(&err);
    assert_int_equal(ht_out_file_create(&out, folder, 4, true, &err), HT_STATUS_ARG); /* a folder */
    ht_error_clear(&err);
    assert_int_equal(ht_out_file_create(&out, "/nonexistent/x", 4, true, &err), HT_STATUS_IO);
    ht_error_clear(&err);
    snprintf(path, sizeof path, "%s/y", folder);
    assert_int_equal(ht_out_file_create(&out, path, UINT64_MAX / 2, true, &err), HT_STATUS_IO); /* no space, said before work */
    assert_non_null(strstr(err.message, "no space left"));
    snprintf(command, sizeof command, "test \"$(ls -A %s)\" = x && rm -r %s", folder, folder);
    assert_int_equal(system(command), 0);
}

static void test_checked_arithmetic(void** state)
{
    (void)state;
    int64_t v = 7;
    assert_false(ht_mul_i64(INT64_MAX, 2, &v));
    assert_int_equal(v, 7);
    assert_true(ht_mul_i64(1 << 20, 1 << 20, &v));
    assert_int_equal(v, (int64_t)1 << 40);
}

static void test_type_table(void** state)
{
    (void)state;
    size_t   n   = 0;
    ht_error err = HT_ERROR_INIT;
    assert_null(ht_type_get(4));
    assert_null(ht_type_get(0xFFFFFFFFu));
    assert_ptr_equal(ht_type_find("q4_K"), ht_type_get(12));
    assert_int_equal(ht_row_bytes(ht_type_get(HT_TYPE_q4_k), 512, &n, &err), HT_STATUS_OK);
    assert_int_equal(n, 288);
    assert_int_equal(ht_row_bytes(ht_type_get(HT_TYPE_q4_k), 130, &n, &err), HT_STATUS_ARG);
    for (uint32_t id = 0; id < HT_TYPE_END; id++) { /* every fallback chain ends at a type that any row fills */
        const ht_type_info* info = ht_type_get(id);
        int                 steps = 0;
        while (info && info->block_elems > 1) {
            info = ht_type_get(info->fallback);
            assert_non_null(info);
            assert_true(++steps < 5);
        }
    }
}

static void test_isa_names(void** state)
{
    (void)state;
    ht_isa   isa;
    ht_error err = HT_ERROR_INIT;
    assert_int_equal(ht_isa_parse(&isa, "scalar", &err), HT_STATUS_OK);
    assert_int_equal(ht_isa_parse(&isa, "sse9", &err), HT_STATUS_ARG);
    ht_error_clear(&err);
    assert_int_equal(ht_isa_parse(&isa, NULL, &err), HT_STATUS_OK);
    assert_true(ht_isa_available(isa, ht_cpu_features()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_line_names_everything),
        cmocka_unit_test(test_utf8_clean_keeps_what_json_can_escape),
        cmocka_unit_test(test_f16_round_trip_and_ties),
        cmocka_unit_test(test_edge_rows_match_recorded_halves),
        cmocka_unit_test(test_small_floats),
        cmocka_unit_test(test_file_reads_are_bounded),
        cmocka_unit_test(test_text_plain_gzip_and_cut),
        cmocka_unit_test(test_output_appears_only_when_committed),
        cmocka_unit_test(test_checked_arithmetic),
        cmocka_unit_test(test_type_table),
        cmocka_unit_test(test_isa_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
