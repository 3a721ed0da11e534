/* formats/meta.c and formats/base/name_map.c: typed values in order, lookups by name, refusals that say what was expected. */

#include "formats/base/name_map.h"
#include "formats/meta.h"
#include "tests/temp_folder.h"

static ht_error err;

static int reset(void** state)
{
    (void)state;
    err = (ht_error)HT_ERROR_INIT;
    return 0;
}

static void test_map_finds_what_was_added(void** state)
{
    (void)state;
    enum { N = 20000 };
    static char  names[N][16];
    ht_name_map* map = ht_name_map_create();
    assert_int_equal(ht_name_map_find(map, "", 0), -1);
    for (int64_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "n%d", (int)i);
        assert_int_equal(ht_name_map_add(map, names[i], strlen(names[i]), i), i);
    }
    assert_int_equal(ht_name_map_add(map, "n7", 2, 99), 7); /* a duplicate changes nothing */
    for (int64_t i = 0; i < N; i++) { assert_int_equal(ht_name_map_find(map, names[i], strlen(names[i])), i); }
    assert_int_equal(ht_name_map_find(map, "n20000", 6), -1);
    assert_int_equal(ht_name_map_find(map, "n12345", 3), 12); /* by length, not by NUL */
    ht_name_map_free(map);
}

static void test_set_find_replace_remove(void** state)
{
    (void)state;
    ht_meta* meta = ht_meta_create();
    assert_int_equal(ht_meta_set_u32(meta, "a", 1, &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_set_string(meta, "b", "text", &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_set_f32(meta, "c", 0.5f, &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_set_string(meta, "a", "now a string", &err), HT_STATUS_OK); /* keeps its place */
    assert_int_equal(ht_meta_count(meta), 3);
    assert_string_equal(ht_meta_at(meta, 0)->key, "a");
    assert_int_equal(ht_meta_at(meta, 0)->type, HT_META_TYPE_STRING);
    ht_meta_remove(meta, "b");
    ht_meta_remove(meta, "absent");
    assert_int_equal(ht_meta_count(meta), 2);
    assert_null(ht_meta_find(meta, "b"));
    assert_string_equal(ht_meta_at(meta, 1)->key, "c");
    assert_ptr_equal(ht_meta_find(meta, "c"), ht_meta_at(meta, 1));
    assert_int_equal(ht_meta_set_u32(meta, "", 1, &err), HT_STATUS_ARG);
    ht_meta_free(meta);
    ht_meta_free(NULL);
}

static void test_values_are_copies(void** state)
{
    (void)state;
    ht_meta*  meta     = ht_meta_create();
    ht_meta*  copy     = NULL;
    float     values[] = { 1.0f, 2.0f };
    char      text[]   = "x\0y";
    ht_string strings[] = { { text, 3 }, { text, 1 } };
    assert_int_equal(ht_meta_set_values(meta, "v", HT_META_TYPE_F32, true, 2, values, &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_set_strings(meta, "s", true, 2, strings, &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_set_values(meta, "none", HT_META_TYPE_F32, true, 0, NULL, &err), HT_STATUS_OK);
    values[0] = 9.0f;
    text[0]   = '!';
    assert_int_equal(ht_meta_clone(&copy, meta, &err), HT_STATUS_OK);
    for (int64_t i = 0; i < 3; i++) { assert_true(ht_meta_kv_equal(ht_meta_at(meta, i), ht_meta_at(copy, i))); }
    assert_false(ht_meta_kv_equal(ht_meta_at(meta, 0), ht_meta_at(meta, 2)));
    ht_meta_free(meta);
    const ht_meta_kv* kv = NULL;
    assert_int_equal(ht_meta_get_array(copy, "v", true, HT_META_TYPE_F32, &kv, &err), HT_STATUS_OK);
    assert_true(((const float*)kv->data)[0] == 1.0f && (uintptr_t)kv->data % 8 == 0);
    assert_int_equal(ht_meta_get_array(copy, "s", true, HT_META_TYPE_STRING, &kv, &err), HT_STATUS_OK);
    assert_memory_equal(kv->strings[0].data, "x\0y", 4);
    ht_meta_free(copy);
}

static void test_integers_of_any_type_that_fit(void** state)
{
    (void)state;
    static const struct { ht_meta_type type; uint64_t raw; bool fits_u32, is_integer; int64_t value; } cases[] = {
        { HT_META_TYPE_U8, 200, true, true, 200 },           { HT_META_TYPE_I8, 0xFF, false, true, -1 },
        { HT_META_TYPE_U16, 65535, true, true, 65535 },      { HT_META_TYPE_I16, 0x8000, false, true, -32768 },
        { HT_META_TYPE_U32, 0xFFFFFFFFu, true, true, 4294967295 }, { HT_META_TYPE_I32, 0xFFFFFFFEu, false, true, -2 },
        { HT_META_TYPE_U64, 7, true, true, 7 },              { HT_META_TYPE_U64, (uint64_t)1 << 32, false, true, (int64_t)1 << 32 },
        { HT_META_TYPE_U64, UINT64_MAX, false, false, 0 },   { HT_META_TYPE_I64, UINT64_MAX, false, true, -1 },
        { HT_META_TYPE_F32, 0, false, false, 0 },            { HT_META_TYPE_BOOL, 1, false, false, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_meta* meta  = ht_meta_create();
        int64_t  value = 77;
        uint32_t u32   = 77;
        assert_int_equal(ht_meta_set_values(meta, "k", cases[i].type, false, 1, &cases[i].raw, &err), HT_STATUS_OK);
        const ht_status st = ht_meta_get_i64(meta, "k", true, &value, &err);
        assert_int_equal(st, cases[i].is_integer ? HT_STATUS_OK : HT_STATUS_FORMAT);
        assert_int_equal(value, cases[i].is_integer ? cases[i].value : 77);
        ht_error_clear(&err);
        assert_int_equal(ht_meta_get_u32(meta, "k", true, &u32, &err), cases[i].fits_u32 ? HT_STATUS_OK : HT_STATUS_FORMAT);
        assert_int_equal(u32, cases[i].fits_u32 ? (uint32_t)cases[i].value : 77);
        ht_error_clear(&err);
        ht_meta_free(meta);
    }
}

/* K1 #7: the right count under a narrower element type. */
static void test_arrays_of_another_type_are_refused(void** state)
{
    (void)state;
    ht_meta*          meta = ht_meta_create();
    const ht_meta_kv* kv   = NULL;
    const char*       text = NULL;
    const uint64_t    raw[4] = { 0 };
    assert_int_equal(ht_meta_set_values(meta, "tokenizer.ggml.scores", HT_META_TYPE_U8, true, 4, raw, &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_set_values(meta, "tokenizer.ggml.token_type", HT_META_TYPE_F64, true, 4, raw, &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_set_values(meta, "tokenizer.ggml.tokens", HT_META_TYPE_U32, true, 4, raw, &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_set_f32(meta, "scalar", 1.0f, &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_get_array(meta, "tokenizer.ggml.scores", true, HT_META_TYPE_F32, &kv, &err), HT_STATUS_FORMAT);
    assert_contains(err.message, "tokenizer.ggml.scores: expected f32 array, found u8");
    reset(NULL);
    assert_int_equal(ht_meta_get_array(meta, "tokenizer.ggml.token_type", true, HT_META_TYPE_I32, &kv, &err), HT_STATUS_FORMAT);
    assert_contains(err.message, "expected i32 array, found f64");
    reset(NULL);
    assert_int_equal(ht_meta_get_array(meta, "tokenizer.ggml.tokens", true, HT_META_TYPE_STRING, &kv, &err), HT_STATUS_FORMAT);
    assert_contains(err.message, "expected string array, found u32");
    reset(NULL);
    assert_int_equal(ht_meta_get_array(meta, "scalar", false, HT_META_TYPE_F32, &kv, &err), HT_STATUS_FORMAT);
    assert_contains(err.message, "expected f32 array, found f32");
    reset(NULL);
    assert_int_equal(ht_meta_get_string(meta, "scalar", false, &text, &err), HT_STATUS_FORMAT);
    assert_null(kv);
    assert_null(text);
    ht_meta_free(meta);
}

static void test_absent_keys(void** state)
{
    (void)state;
    ht_meta* meta = ht_meta_create();
    bool     flag = true;
    float    f    = 3.0f;
    assert_int_equal(ht_meta_get_bool(meta, "k", false, &flag, &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_get_f32(meta, "k", false, &f, &err), HT_STATUS_OK);
    assert_true(flag && f == 3.0f);
    assert_int_equal(ht_meta_get_f32(meta, "rope.freq_base", true, &f, &err), HT_STATUS_FORMAT);
    assert_contains(err.message, "rope.freq_base");
    ht_meta_free(meta);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_map_finds_what_was_added, reset),
        cmocka_unit_test_setup(test_set_find_replace_remove, reset),
        cmocka_unit_test_setup(test_values_are_copies, reset),
        cmocka_unit_test_setup(test_integers_of_any_type_that_fit, reset),
        cmocka_unit_test_setup(test_arrays_of_another_type_are_refused, reset),
        cmocka_unit_test_setup(test_absent_keys, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
