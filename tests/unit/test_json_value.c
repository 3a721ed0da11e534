/* formats/json_value: what is refused (with which position), typed reads and the paths in their messages. */
#include "tests/ht_test.h"

#include "formats/json_value.h"

static ht_json* parse(const char* text)
{
    ht_json* json = NULL;
    ht_error err  = HT_ERROR_INIT;
    if (ht_json_parse(&json, text, strlen(text), "config.json", &err) != HT_STATUS_OK) { fail_msg("%s: %s", text, err.message); }
    return json;
}

static void assert_refused(const char* text, size_t n_bytes, const char* message, uint64_t offset)
{
    ht_json* json = NULL;
    ht_error err  = HT_ERROR_INIT;
    assert_int_equal(ht_json_parse(&json, text, n_bytes, "config.json", &err), HT_STATUS_FORMAT);
    assert_null(json);
    if (!strstr(err.message, message)) { fail_msg("\"%s\" does not contain \"%s\"", err.message, message); }
    assert_string_equal(err.file, "config.json");
    if (err.offset_bytes != offset) { fail_msg("%s: at %llu", text, (unsigned long long)err.offset_bytes); }
}

static void test_syntax_errors_have_a_position(void** state)
{
    (void)state;
    assert_refused("{\"a\": ]}", 8, "not valid JSON at byte 6", 6);
    assert_refused("{} {}", 5, "text after the end", 3);
    assert_refused("", 0, "not valid JSON", 0);
    assert_refused("{\"a\": \"b\\u0000c\"}", 17, "NUL", 8);
    assert_refused("{\"a\": \"b\0c\"}", 12, "NUL", 8);
    ht_json* json = parse("{\"a\": \"b\\\\u0000c\"} \n");
    assert_string_equal(ht_json_as_string(ht_json_member(ht_json_root(json), "a")), "b\\u0000c");
    ht_json_free(json);
}

static void test_duplicate_keys_are_refused_with_their_path(void** state)
{
    (void)state;
    const char* nested = "{\"x\": [1, {\"in\": {\"b\": 1, \"a\": 2, \"b\": 3}}]}";
    assert_refused("{\"a\": 1, \"a\": 1}", 16, "duplicate key \"a\"", UINT64_MAX);
    assert_refused(nested, strlen(nested), "duplicate key \"b\" in x[1].in", UINT64_MAX);
    ht_json_free(parse("{\"a\": {\"k\": 1}, \"b\": {\"k\": 1}, \"A\": 0}"));
}

static void test_deep_nesting_is_refused(void** state)
{
    (void)state;
    char  text[4000];
    memset(text, '[', sizeof text);
    ht_json* json = NULL;
    assert_int_equal(ht_json_parse(&json, text, sizeof text, NULL, NULL), HT_STATUS_FORMAT);
}

static void test_typed_reads(void** state)
{
    (void)state;
    ht_json*             json = parse("{\"n\": 12, \"f\": 1e-5, \"b\": true, \"s\": \"hi\", \"z\": null, \"o\": {\"k\": [1, 2]}}");
    const ht_json_value* root = ht_json_root(json);
    int64_t     n = 0;
    double      f = 0.0;
    bool        b = false;
    const char* s = NULL;
    const ht_json_value *object = NULL, *array = NULL;
    assert_int_equal(ht_json_get_i64(json, root, "n", true, 0, 100, &n, NULL), HT_STATUS_OK);
    assert_int_equal(ht_json_get_f64(json, root, "f", true, &f, NULL), HT_STATUS_OK);
    assert_int_equal(ht_json_get_bool(json, root, "b", true, &b, NULL), HT_STATUS_OK);
    assert_int_equal(ht_json_get_string(json, root, "s", true, &s, NULL), HT_STATUS_OK);
    assert_int_equal(ht_json_get_object(json, root, "o", true, &object, NULL), HT_STATUS_OK);
    assert_int_equal(ht_json_get_array(json, object, "k", true, &array, NULL), HT_STATUS_OK);
    assert_int_equal(n, 12);
    assert_true(f == 1e-5 && b);
    assert_string_equal(s, "hi");
    assert_int_equal(ht_json_count(array), 2);
    assert_int_equal(ht_json_get_i64(json, root, "z", false, 0, 1, &n, NULL), HT_STATUS_OK); /* null is absent */
    assert_int_equal(ht_json_get_i64(json, root, "none", false, 0, 1, &n, NULL), HT_STATUS_OK);
    assert_int_equal(n, 12);
    ht_json_free(json);
}

static void assert_get_fails(ht_json* json, const ht_json_value* object, const char* key, const char* message)
{
    ht_error err = HT_ERROR_INIT;
    int64_t  n   = 77;
    assert_int_equal(ht_json_get_i64(json, object, key, true, 0, 100, &n, &err), HT_STATUS_FORMAT);
    assert_string_equal(err.message, message);
    assert_string_equal(err.file, "config.json");
    assert_int_equal(n, 77);
}

static void test_messages_carry_the_path(void** state)
{
    (void)state;
    ht_json* json = parse("{\"o\": [{\"s\": \"x\", \"h\": 1.5, \"neg\": -1, \"big\": 1e17, \"z\": null}]}");
    const ht_json_value* object = ht_json_first(ht_json_member(ht_json_root(json), "o"));
    assert_get_fails(json, object, "s", "o[0].s: expected a number, found a string");
    assert_get_fails(json, object, "h", "o[0].h: 1.5 is not an integer in 0..100");
    assert_get_fails(json, object, "neg", "o[0].neg: -1 is not an integer in 0..100");
    assert_get_fails(json, object, "big", "o[0].big: 1e+17 is not an integer in 0..100");
    assert_get_fails(json, object, "z", "o[0].z: is null");
    assert_get_fails(json, object, "none", "o[0].none: is missing");
    assert_get_fails(json, ht_json_root(json), "none", "none: is missing");
    ht_json_free(json);
}

static void test_lift_puts_inner_members_over_the_root(void** state)
{
    (void)state;
    ht_json* json = parse("{\"a\": 1, \"text_config\": {\"a\": 2, \"b\": 3, \"text_config\": 4}, \"c\": 5}");
    assert_int_equal(ht_json_lift(json, "text_config", NULL), HT_STATUS_OK);
    assert_int_equal(ht_json_lift(json, "absent", NULL), HT_STATUS_OK);
    const char* const keys[]   = { "a", "b", "c" };
    const int64_t     values[] = { 2, 3, 5 };
    for (int i = 0; i < 3; i++) {
        int64_t n = 0;
        assert_true(ht_json_as_i64(ht_json_member(ht_json_root(json), keys[i]), &n));
        assert_int_equal(n, values[i]);
    }
    ht_json_free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_syntax_errors_have_a_position),
        cmocka_unit_test(test_duplicate_keys_are_refused_with_their_path),
        cmocka_unit_test(test_deep_nesting_is_refused),
        cmocka_unit_test(test_typed_reads),
        cmocka_unit_test(test_messages_carry_the_path),
        cmocka_unit_test(test_lift_puts_inner_members_over_the_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
