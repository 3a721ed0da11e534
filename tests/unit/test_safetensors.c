/* formats/safetensors: the header cases of bad-inputs K2 (the number of the entry is in the test's name), value types, lookups. */
#include "tests/temp_folder.h"

#include <malloc.h>
#include <math.h>
#include <time.h>

#include "formats/base/half.h"
#include "formats/safetensors.h"

static temp_folder folder;

static int setup(void** state)
{
    (void)state;
    folder = temp_folder_create();
    return 0;
}

static int teardown(void** state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static ht_status open_text(ht_safetensors** out, const char* header, size_t n_data, const ht_log* log, ht_error* err)
{
    temp_write_safetensors(&folder, "t.safetensors", header, strlen(header), NULL, n_data);
    return ht_safetensors_open(out, temp_path(&folder, "t.safetensors"), log, err);
}

static void assert_opens(const char* header, size_t n_data, int64_t n_tensors)
{
    ht_safetensors* s   = NULL;
    ht_error        err = HT_ERROR_INIT;
    if (open_text(&s, header, n_data, NULL, &err) != HT_STATUS_OK) { fail_msg("%s: %s: %s", header, err.tensor, err.message); }
    assert_int_equal(ht_safetensors_n_tensors(s), n_tensors);
    ht_safetensors_close(s);
}

static void assert_refused(const char* header, size_t n_data, ht_status status, const char* tensor, const char* message)
{
    ht_safetensors* s   = NULL;
    ht_error        err = HT_ERROR_INIT;
    assert_int_equal(open_text(&s, header, n_data, NULL, &err), status);
    assert_null(s);
    assert_string_equal(err.tensor, tensor);
    assert_contains(err.message, message);
    assert_contains(err.file, "t.safetensors");
}

#define W(name, shape, offsets) "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_11_duplicate_keys(void** state)
{
    (void)state;
    assert_refused("{" W("w", "[2]", "[0,8]") "," W("w", "[2]", "[8,16]") "}", 16, HT_STATUS_FORMAT, "w", "duplicate key w in header");
    assert_refused("{" W("w", "[2]", "[0,8]") "," W("\\u0077", "[2]", "[8,16]") "}", 16, HT_STATUS_FORMAT, "w", "duplicate key w in header");
    assert_refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, HT_STATUS_FORMAT, "", "duplicate key __metadata__");
    assert_refused("{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, HT_STATUS_FORMAT, "w", "duplicate key dtype");
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void test_13_large_headers(void** state)
{
    (void)state;
    enum { N = 200000, ROOM = 96 };
    char*  header = malloc((size_t)N * ROOM);
    size_t n      = 0;
    for (int i = 0; i < N; i++) {
        n += (size_t)snprintf(header + n, ROOM, "%c\"t%06d\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[%d,%d]}", i ? ',' : '{', i, 4 * i, 4 * i + 4);
    }
    header[n++] = '}';
    temp_write_safetensors(&folder, "t.safetensors", header, n, NULL, 4 * (size_t)N);
    free(header);
    ht_safetensors*  s      = NULL;
    struct mallinfo2 before = mallinfo2();
    const double     start  = seconds();
    assert_int_equal(ht_safetensors_open(&s, temp_path(&folder, "t.safetensors"), NULL, NULL), HT_STATUS_OK);
    const double     elapsed = seconds() - start;
    struct mallinfo2 after   = mallinfo2();
    assert_int_equal(ht_safetensors_n_tensors(s), N);
    assert_int_equal(ht_safetensors_find(s, "t123456")->offset_bytes, 8 + n + 4 * 123456);
    print_message("header of %zu bytes: %.3f s, %.1f x its size in memory\n", n, elapsed,
                  (double)(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd) / (double)n);
    assert_true(elapsed < 1.0);
    assert_true(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd < 10 * n);
    ht_safetensors_close(s);

    char* wide = malloc(101000000);
    memset(wide, ' ', 101000000);
    wide[0] = '{';
    wide[1] = '}';
    ht_error err = HT_ERROR_INIT;
    temp_write_safetensors(&folder, "wide.safetensors", wide, 101000000, NULL, 0);
    assert_int_equal(ht_safetensors_open(&s, temp_path(&folder, "wide.safetensors"), NULL, &err), HT_STATUS_UNSUPPORTED);
    assert_contains(err.message, "101000000 bytes is above the limit of 100000000");
    free(wide);
}

static void test_14_metadata_only(void** state)
{
    (void)state;
    assert_opens("{\"__metadata__\":{\"a\":\"b\"}}", 0, 0);
    assert_opens("{}", 0, 0);
    assert_refused("{},\"__metadata__\":{\"a\":\"b\"}}   ", 0, HT_STATUS_FORMAT, "", "the end of the header expected, found ','");
    ht_error        err = HT_ERROR_INIT;
    ht_safetensors* s   = NULL;
    open_text(&s, "{},\"x\":1}", 0, NULL, &err);
    assert_int_equal(err.offset_bytes, 8 + 2);

    test_log     kept = { .n = 0 };
    const ht_log log  = { test_log_keep, &kept };
    assert_int_equal(open_text(&s, "{\"__metadata__\":{\"n\":1,\"s\":\"x\"}}", 0, &log, NULL), HT_STATUS_OK);
    ht_safetensors_close(s);
    assert_contains(kept.text, "__metadata__.n is not a string");
    assert_int_equal(open_text(&s, "{\"__metadata__\":null}", 0, &log, NULL), HT_STATUS_OK);
    ht_safetensors_close(s);
    assert_contains(kept.text, "__metadata__ is not an object");
}

static void test_15_empty_and_scalar_tensors(void** state)
{
    (void)state;
    static const float data[] = { 7.0f, 1.0f, 2.0f };
    const char*     header = "{" W("a", "[0,4]", "[0,0]") "," W("s", "[]", "[0,4]") "," W("w", "[2]", "[4,12]") "}";
    ht_safetensors* s      = NULL;
    float           x[2]   = { 0 };
    temp_write_safetensors(&folder, "t.safetensors", header, strlen(header), data, sizeof data);
    assert_int_equal(ht_safetensors_open(&s, temp_path(&folder, "t.safetensors"), NULL, NULL), HT_STATUS_OK);
    const ht_st_tensor *a = ht_safetensors_find(s, "a"), *scalar = ht_safetensors_find(s, "s"), *w = ht_safetensors_find(s, "w");
    assert_int_equal(a->n_elems, 0);
    assert_int_equal(ht_safetensors_read_f32(s, a, 0, 0, x, NULL), HT_STATUS_OK);
    assert_int_equal(scalar->n_dims, 0);
    assert_int_equal(scalar->n_elems, 1);
    assert_int_equal(ht_safetensors_read_f32(s, scalar, 0, 1, x, NULL), HT_STATUS_OK);
    assert_true(x[0] == 7.0f);
    assert_int_equal(ht_safetensors_read_f32(s, w, 0, 2, x, NULL), HT_STATUS_OK);
    assert_true(x[0] == 1.0f && x[1] == 2.0f);
    assert_int_equal(ht_safetensors_read_f32(s, w, 1, 2, x, NULL), HT_STATUS_BOUNDS);
    assert_null(ht_safetensors_find(s, "b"));
    ht_safetensors_close(s);
}

static void test_17_offsets_must_chain(void** state)
{
    (void)state;
    assert_opens("{" W("b", "[2]", "[8,16]") "," W("a", "[2]", "[0,8]") "}", 16, 2); /* any order of keys */
    assert_refused("{" W("a", "[2]", "[0,8]") "," W("b", "[2]", "[4,12]") "}", 12, HT_STATUS_FORMAT, "b", "data_offsets [4, 12] overlap a, which ends at 8");
    assert_refused("{" W("a", "[2]", "[0,8]") "," W("b", "[2]", "[16,24]") "}", 24, HT_STATUS_FORMAT, "b", "data_offsets [16, 24] leave a hole: the bytes from 8");
    assert_refused("{" W("a", "[2]", "[8,0]") "}", 8, HT_STATUS_FORMAT, "a", "[8, 0] are reversed");
    assert_refused("{" W("a", "[2]", "[0,8]") "}", 4, HT_STATUS_BOUNDS, "a", "[0, 8] leave the file, which has 4 bytes");
    assert_refused("{" W("a", "[2]", "[0,12]") "}", 12, HT_STATUS_FORMAT, "a", "[0, 12] span 12 bytes, shape and dtype need 8");
    assert_refused("{" W("a", "[2]", "[0,8]") "}", 12, HT_STATUS_FORMAT, "", "trailing data");
    assert_refused("{" W("a", "[2]", "[0.0,8.0]") "}", 8, HT_STATUS_FORMAT, "a", "an integer without point");
    assert_refused("{" W("a", "[2]", "[-8,0]") "}", 8, HT_STATUS_FORMAT, "a", "a non-negative integer expected, found '-'");
    assert_refused("{" W("a", "[2]", "[0,\"8\"]") "}", 8, HT_STATUS_FORMAT, "a", "a non-negative integer expected, found '\"'");
    assert_refused("{" W("a", "[2]", "[0,1e30]") "}", 8, HT_STATUS_FORMAT, "a", "an integer without point or exponent");
    assert_refused("{" W("a", "[2]", "[0,8,8]") "}", 8, HT_STATUS_FORMAT, "a", "']' expected");
    assert_refused("{" W("a", "[2]", "[0,99999999999999999999]") "}", 8, HT_STATUS_FORMAT, "a", "below 2^64");
}

static void test_sizes_that_overflow_are_refused(void** state)
{
    (void)state;
    assert_refused("{" W("a", "[4194305,4194305,211106198978564]", "[0,16]") "}", 16, HT_STATUS_BOUNDS, "a", "size overflow");
    assert_refused("{" W("a", "[4611686018427387904]", "[0,0]") "}", 0, HT_STATUS_BOUNDS, "a", "size overflow");
    assert_refused("{" W("a", "[9223372036854775808]", "[0,0]") "}", 0, HT_STATUS_BOUNDS, "a", "too large");
    assert_refused("{" W("a", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, HT_STATUS_UNSUPPORTED, "a", "more than 8 dimensions");
}

static void test_incomplete_entries_and_unknown_dtypes(void** state)
{
    (void)state;
    assert_refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, HT_STATUS_FORMAT, "a", "no dtype");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, HT_STATUS_FORMAT, "a", "no shape");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, HT_STATUS_FORMAT, "a", "no data_offsets");
    assert_refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, HT_STATUS_UNSUPPORTED, "a", "dtype \"F4\"");
    assert_refused("{\"a\":7}", 0, HT_STATUS_FORMAT, "a", "'{' expected, found '7'");
    assert_opens("{\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"extra\":{\"x\":[1,null,\"\\ud83d\\ude00\"]},\"data_offsets\":[0,8]}}", 8, 1);
}

static void test_a_header_that_leaves_the_file(void** state)
{
    (void)state;
    static const uint64_t lengths[] = { 9, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 62 };
    ht_safetensors* s = NULL;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t bytes[16] = { 0 };
        memcpy(bytes, &lengths[i], 8);
        temp_write(&folder, "t.safetensors", bytes, sizeof bytes);
        assert_int_equal(ht_safetensors_open(&s, temp_path(&folder, "t.safetensors"), NULL, NULL), HT_STATUS_BOUNDS);
    }
    temp_write(&folder, "t.safetensors", "abc", 3);
    assert_int_equal(ht_safetensors_open(&s, temp_path(&folder, "t.safetensors"), NULL, NULL), HT_STATUS_BOUNDS);
}

static void test_every_float_dtype_reads_as_f32(void** state)
{
    (void)state;
    static const struct { const char* dtype; uint64_t bits; int n_bytes; float value; } rows[] = {
        { "F64", 0x3FF8000000000000u, 8, 1.5f }, { "F32", 0xC0000000u, 4, -2.0f }, { "F16", 0x3555u, 2, 0x1.554p-2f }, { "BF16", 0x4049u, 2, 0x1.92p+1f },
        { "F8_E4M3", 0x7E, 1, 448.0f },          { "F8_E5M2", 0x3D, 1, 1.25f },    { "F8_E8M0", 0x80, 1, 2.0f },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char            header[128];
        ht_safetensors* s = NULL;
        float           x = NAN;
        snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[0,%d]}}", rows[i].dtype, rows[i].n_bytes);
        temp_write_safetensors(&folder, "t.safetensors", header, strlen(header), &rows[i].bits, (size_t)rows[i].n_bytes);
        assert_int_equal(ht_safetensors_open(&s, temp_path(&folder, "t.safetensors"), NULL, NULL), HT_STATUS_OK);
        assert_int_equal(ht_safetensors_read_f32(s, ht_safetensors_tensor_at(s, 0), 0, 1, &x, NULL), HT_STATUS_OK);
        assert_true(x == rows[i].value);
        ht_safetensors_close(s);
    }
}

static void test_integer_dtypes_are_no_floats(void** state)
{
    (void)state;
    ht_safetensors* s   = NULL;
    float           x   = 0.0f;
    ht_error        err = HT_ERROR_INIT;
    assert_int_equal(open_text(&s, "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3, NULL, NULL), HT_STATUS_OK);
    assert_int_equal(ht_safetensors_read_f32(s, ht_safetensors_tensor_at(s, 0), 0, 1, &x, &err), HT_STATUS_ARG);
    assert_contains(err.message, "dtype U8 is not a float");
    ht_safetensors_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_11_duplicate_keys),
        cmocka_unit_test(test_13_large_headers),
        cmocka_unit_test(test_14_metadata_only),
        cmocka_unit_test(test_15_empty_and_scalar_tensors),
        cmocka_unit_test(test_17_offsets_must_chain),
        cmocka_unit_test(test_sizes_that_overflow_are_refused),
        cmocka_unit_test(test_incomplete_entries_and_unknown_dtypes),
        cmocka_unit_test(test_a_header_that_leaves_the_file),
        cmocka_unit_test(test_every_float_dtype_reads_as_f32),
        cmocka_unit_test(test_integer_dtypes_are_no_floats),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
