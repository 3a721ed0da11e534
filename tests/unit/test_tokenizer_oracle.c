/*
 * Tokenizers against the ids that stock llama.cpp recorded for 70 tricky strings and for broken UTF-8. Needs the reference data and the real
 * vocabularies: HT_REAL_DIR/smollm2-f16.gguf and HT_REAL_DIR/gemma3.gguf (any GGUF of these models). Skipped without them.
 */
#include "tests/ht_test.h"

#include <cjson/cJSON.h>

#include "formats/gguf.h"
#include "runtime/tokenizer.h"

static ht_tokenizer* open_tokenizer(const char* file)
{
    char          path[1024];
    ht_gguf*      gguf      = NULL;
    ht_tokenizer* tokenizer = NULL;
    ht_error      err       = HT_ERROR_INIT;
    const char*   folder    = getenv("HT_REAL_DIR");
    struct stat   info;
    snprintf(path, sizeof path, "%s/%s", folder ? folder : ".", file);
    if (stat(path, &info) != 0) { return NULL; }
    assert_int_equal(ht_gguf_open(&gguf, path, &err), HT_STATUS_OK);
    if (ht_tokenizer_create(&tokenizer, ht_gguf_meta(gguf), &err) != HT_STATUS_OK) { fail_msg("%s", err.message); }
    ht_gguf_close(gguf);
    return tokenizer;
}

static int count_differences(const ht_tokenizer* tokenizer, const char* text, size_t n_bytes, const cJSON* expected, bool add, bool parse)
{
    int32_t* ids = NULL;
    int64_t  n   = 0, i = 0;
    int      bad = 0;
    assert_int_equal(ht_tokenizer_encode(tokenizer, text, n_bytes, add, parse, &ids, &n, NULL), HT_STATUS_OK);
    for (const cJSON* id = expected->child; id; id = id->next, i++) { bad += i >= n || ids[i] != id->valueint; }
    bad += i != n;
    if (bad) { print_error("differs: \"%s\" (%d/%d): %d expected, %d found\n", text, add, parse, cJSON_GetArraySize(expected), (int)n); }
    free(ids);
    return bad;
}

static cJSON* load_json(const char* name)
{
    char* text = ht_test_load(ht_test_shared(name), NULL);
    cJSON* list = cJSON_Parse(text);
    free(text);
    assert_non_null(list);
    return list;
}

static void check_strings(const ht_tokenizer* tokenizer, const char* name)
{
    cJSON* list = load_json(name);
    int    bad = 0, n = 0;
    for (const cJSON* item = list->child; item; item = item->next, n++) {
        const char* text = cJSON_GetStringValue(cJSON_GetObjectItem(item, "text"));
        bad += count_differences(tokenizer, text, strlen(text), cJSON_GetObjectItem(item, "ids"), false, true) != 0;
        bad += count_differences(tokenizer, text, strlen(text), cJSON_GetObjectItem(item, "ids_no_parse_special"), false, false) != 0;
        bad += count_differences(tokenizer, text, strlen(text), cJSON_GetObjectItem(item, "ids_with_bos"), true, true) != 0;
    }
    assert_true(n >= 70);
    assert_int_equal(bad, 0);
    cJSON_Delete(list);
}

static void check_broken_utf8(const ht_tokenizer* tokenizer, const char* name)
{
    cJSON* list = load_json(name);
    int    bad  = 0;
    for (const cJSON* item = list->child; item; item = item->next) {
        const char* hex = cJSON_GetStringValue(cJSON_GetObjectItem(item, "hex"));
        char        text[64];
        size_t      n = 0;
        for (; hex[2 * n]; n++) {
            unsigned byte = 0;
            sscanf(hex + 2 * n, "%2x", &byte);
            text[n] = (char)byte;
        }
        text[n] = '\0';
        const cJSON* ids = cJSON_GetObjectItem(item, "ids");
        if (!cJSON_IsNull(ids)) { bad += count_differences(tokenizer, text, n, ids, false, true) != 0; } /* null: the stock tool aborted */
    }
    assert_int_equal(bad, 0);
    cJSON_Delete(list);
}

static void check(const char* file, const char* strings, const char* broken)
{
    ht_tokenizer* tokenizer = ht_test_shared("oracle") ? open_tokenizer(file) : NULL;
    if (!tokenizer) { skip(); }
    check_strings(tokenizer, strings);
    check_broken_utf8(tokenizer, broken);
    ht_tokenizer_free(tokenizer);
}

static void test_smollm2(void** state)
{
    (void)state;
    check("smollm2-f16.gguf", "oracle/tokens-smollm2.json", "oracle/tokens-invalid-utf8-smollm2.json");
}

static void test_gemma3(void** state)
{
    (void)state;
    check("gemma3.gguf", "oracle/tokens-gemma3.json", "oracle/tokens-invalid-utf8-gemma3.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_smollm2), cmocka_unit_test(test_gemma3) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
