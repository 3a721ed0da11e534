/* Tokenizer files into metadata: what bad-inputs K11 58 and 59 and K4 26 ask, forms of merges and chat templates, broken files. */
#include "tests/tiny_model.h"

#include "formats/hf_tokenizer.h"

typedef struct fixture {
    temp_folder folder;
    tiny_model* m;
    ht_meta*    meta;
    ht_error    err;
} fixture;

static fixture fixture_create(void) { return (fixture){ temp_folder_create(), tiny_create(TINY_LLAMA), NULL, HT_ERROR_INIT }; }

static void fixture_free(fixture* f)
{
    ht_meta_free(f->meta);
    tiny_free(f->m);
    temp_folder_remove(&f->folder);
}

/* Write the JSON files and import them; `n_rows` of the embedding, `pre` forced or NULL. */
static ht_status import(fixture* f, int64_t n_rows, const char* pre)
{
    char                          path[512];
    const ht_hf_tokenizer_options options = { path, "llama", 288, n_rows, pre };
    struct stat                   info;
    snprintf(path, sizeof path, "%s/in", f->folder.path);
    if (stat(path, &info) != 0) { tiny_make_folder(&f->folder, "in"); }
    tiny_save_json_files(f->m, &f->folder, "in");
    ht_meta_free(f->meta);
    f->meta = ht_meta_create();
    ht_error_clear(&f->err);
    return ht_hf_tokenizer_import(f->meta, &options, NULL, &f->err);
}

static void import_ok(fixture* f)
{
    if (import(f, 288, NULL) != HT_STATUS_OK) { fail_msg("%s", f->err.message); }
}

static void set_config(fixture* f, const char* key, const char* json)
{
    cJSON_DeleteItemFromObjectCaseSensitive(f->m->tokenizer_config, key);
    if (json) { cJSON_AddItemToObject(f->m->tokenizer_config, key, cJSON_Parse(json)); }
}

static void set_tokenizer(fixture* f, const char* key, const char* json)
{
    cJSON_DeleteItemFromObjectCaseSensitive(f->m->tokenizer, key);
    cJSON_AddItemToObject(f->m->tokenizer, key, cJSON_Parse(json));
}

static const char* text_of(const fixture* f, const char* key)
{
    const char* text = NULL;
    assert_int_equal(ht_meta_get_string(f->meta, key, false, &text, NULL), HT_STATUS_OK);
    return text;
}

/* K11 58: a pattern that no reader knows is shown; --pre forces a name that one knows. */
static void test_unknown_pre_tokenizer(void** state)
{
    (void)state;
    fixture f = fixture_create();
    set_tokenizer(&f, "pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,7}|\\\\s+|\\\\S+\"},\"behavior\":\"Isolated\",\"invert\":false}");
    assert_int_equal(import(&f, 288, NULL), HT_STATUS_UNSUPPORTED);
    assert_non_null(strstr(f.err.message, "\\p{N}{1,7}|\\s+|\\S+"));
    assert_non_null(strstr(f.err.message, "--pre"));
    assert_int_equal(import(&f, 288, "banana"), HT_STATUS_ARG);
    assert_int_equal(import(&f, 288, "gpt-2"), HT_STATUS_OK);
    assert_string_equal(text_of(&f, "tokenizer.ggml.pre"), "gpt-2");
    fixture_free(&f);
}

static void test_known_pre_tokenizers(void** state)
{
    (void)state;
#define SPLIT(regex) "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define SEQUENCE(steps) "{\"type\":\"Sequence\",\"pretokenizers\":[" steps ",{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"
#define WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|"
#define REST "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
    static const struct { const char* json; bool ignore_merges; const char* name; } cases[] = {
        { SEQUENCE(SPLIT(WORDS "\\\\p{N}{1,3}" REST)), true, "llama-bpe" },
        { SEQUENCE(SPLIT(WORDS "\\\\p{N}{1,3}" REST)), false, "dbrx" },
        { SEQUENCE(SPLIT(WORDS "\\\\p{N}" REST)), false, "qwen2" },
        { "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}", false, "gpt-2" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f = fixture_create();
        set_tokenizer(&f, "pre_tokenizer", cases[i].json);
        cJSON_AddBoolToObject(cJSON_GetObjectItem(f.m->tokenizer, "model"), "ignore_merges", cases[i].ignore_merges);
        import_ok(&f);
        assert_string_equal(text_of(&f, "tokenizer.ggml.pre"), cases[i].name);
        fixture_free(&f);
    }
}

/* K11 59: keys mirror the source, and no id is invented. */
static void test_bos_rules(void** state)
{
    (void)state;
    static const char* const flags[]  = { "true", "false", NULL };
    static const char* const tokens[] = { "\"<s>\"", "null", "{\"content\":\"<s>\"}" };
    for (int a = 0; a < 3; a++) {
        for (int b = 0; b < 3; b++) {
            fixture  f     = fixture_create();
            bool     value = false;
            uint32_t id    = 9999;
            set_config(&f, "add_bos_token", flags[a]);
            set_config(&f, "bos_token", tokens[b]);
            cJSON_DeleteItemFromObjectCaseSensitive(f.m->config, "bos_token_id");
            import_ok(&f);
            assert_int_equal(ht_meta_get_u32(f.meta, "tokenizer.ggml.bos_token_id", false, &id, NULL), HT_STATUS_OK);
            assert_int_equal(id, b == 1 ? 9999 : 284);
            assert_int_equal(ht_meta_find(f.meta, "tokenizer.ggml.add_bos_token") != NULL, a < 2);
            assert_int_equal(ht_meta_get_bool(f.meta, "tokenizer.ggml.add_bos_token", false, &value, NULL), HT_STATUS_OK);
            assert_int_equal(value, a == 0);
            fixture_free(&f);
        }
    }
}

/* A template that begins with BOS adds it, unless tokenizer_config.json says otherwise. */
static void test_bos_from_template(void** state)
{
    (void)state;
    fixture f     = fixture_create();
    bool    value = false;
    set_tokenizer(&f, "post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
                                        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]}");
    set_config(&f, "add_bos_token", NULL);
    import_ok(&f);
    assert_int_equal(ht_meta_get_bool(f.meta, "tokenizer.ggml.add_bos_token", true, &value, NULL), HT_STATUS_OK);
    assert_true(value);
    set_config(&f, "add_bos_token", "false");
    import_ok(&f);
    assert_int_equal(ht_meta_get_bool(f.meta, "tokenizer.ggml.add_bos_token", true, &value, NULL), HT_STATUS_OK);
    assert_false(value);
    fixture_free(&f);
}

/* K4 26: more rows than tokens are padded with unique unused entries; fewer are refused with both numbers. */
static void test_rows_and_tokens(void** state)
{
    (void)state;
    fixture           f      = fixture_create();
    const ht_meta_kv* tokens = NULL;
    const ht_meta_kv* types  = NULL;
    assert_int_equal(import(&f, 304, NULL), HT_STATUS_OK);
    assert_int_equal(ht_meta_get_array(f.meta, "tokenizer.ggml.tokens", true, HT_META_TYPE_STRING, &tokens, NULL), HT_STATUS_OK);
    assert_int_equal(ht_meta_get_array(f.meta, "tokenizer.ggml.token_type", true, HT_META_TYPE_I32, &types, NULL), HT_STATUS_OK);
    assert_int_equal(tokens->n_values, 304);
    assert_string_equal(tokens->strings[303].data, "[PAD303]");
    assert_int_equal(((const int32_t*)types->data)[303], 5);
    assert_int_equal(((const int32_t*)types->data)[284], 3);
    assert_int_equal(((const int32_t*)types->data)[5], 1);
    temp_write_text(&f.folder, "in/added_tokens.json", "{\"<x>\":288,\"<y>\":289,\"<z>\":290,\"<w>\":291}");
    assert_int_equal(import(&f, 288, NULL), HT_STATUS_FORMAT);
    assert_non_null(strstr(f.err.message, "292"));
    assert_non_null(strstr(f.err.message, "288"));
    fixture_free(&f);
}

static void test_forms_of_merges(void** state)
{
    (void)state;
    fixture           f = fixture_create();
    const ht_meta_kv *a = NULL, *b = NULL;
    ht_meta*          first = NULL;
    cJSON*            pairs = cJSON_CreateArray();
    import_ok(&f);
    first   = f.meta;
    f.meta  = NULL;
    for (int i = 0; i < TINY_N_MERGES; i++) {
        const char* pair[2] = { tiny_merges[i][0], tiny_merges[i][1] };
        cJSON_AddItemToArray(pairs, cJSON_CreateStringArray(pair, 2));
    }
    cJSON_ReplaceItemInObjectCaseSensitive(cJSON_GetObjectItem(f.m->tokenizer, "model"), "merges", pairs);
    import_ok(&f);
    ht_meta_get_array(first, "tokenizer.ggml.merges", true, HT_META_TYPE_STRING, &a, NULL);
    ht_meta_get_array(f.meta, "tokenizer.ggml.merges", true, HT_META_TYPE_STRING, &b, NULL);
    assert_int_equal(a->n_values, b->n_values);
    for (uint64_t i = 0; i < a->n_values; i++) { assert_string_equal(a->strings[i].data, b->strings[i].data); }
    ht_meta_free(first);
    cJSON_AddItemToArray(pairs, cJSON_CreateNumber(7));
    assert_int_equal(import(&f, 288, NULL), HT_STATUS_FORMAT);
    assert_non_null(strstr(f.err.message, "merge 28"));
    fixture_free(&f);
}

static void test_chat_templates(void** state)
{
    (void)state;
    fixture           f     = fixture_create();
    const ht_meta_kv* names = NULL;
    import_ok(&f);
    assert_null(ht_meta_find(f.meta, "tokenizer.chat_template"));
    temp_write_text(&f.folder, "in/chat_template.jinja", "from the file");
    import_ok(&f);
    assert_string_equal(text_of(&f, "tokenizer.chat_template"), "from the file");
    set_config(&f, "chat_template", "\"from the config\"");
    import_ok(&f);
    assert_string_equal(text_of(&f, "tokenizer.chat_template"), "from the config");
    set_config(&f, "chat_template", "[{\"name\":\"default\",\"template\":\"one\"},{\"name\":\"tool_use\",\"template\":\"two\"}]");
    import_ok(&f);
    assert_string_equal(text_of(&f, "tokenizer.chat_template"), "one");
    assert_string_equal(text_of(&f, "tokenizer.chat_template.tool_use"), "two");
    assert_int_equal(ht_meta_get_array(f.meta, "tokenizer.chat_templates", true, HT_META_TYPE_STRING, &names, NULL), HT_STATUS_OK);
    assert_int_equal(names->n_values, 1);
    fixture_free(&f);
}

static void test_broken_files(void** state)
{
    (void)state;
    fixture f = fixture_create();
    cJSON_AddNumberToObject(cJSON_GetObjectItem(cJSON_GetObjectItem(f.m->tokenizer, "model"), "vocab"), "twin", 40); /* two texts, one id */
    assert_int_equal(import(&f, 288, NULL), HT_STATUS_FORMAT);
    assert_non_null(strstr(f.err.message, "40"));
    fixture_free(&f);

    f = fixture_create();
    cJSON_AddStringToObject(cJSON_GetObjectItem(cJSON_GetObjectItem(f.m->tokenizer, "model"), "vocab"), "text", "not a number");
    assert_int_equal(import(&f, 288, NULL), HT_STATUS_FORMAT);
    fixture_free(&f);

    f = fixture_create();
    cJSON_ReplaceItemInObjectCaseSensitive(cJSON_GetObjectItem(f.m->tokenizer, "model"), "type", cJSON_CreateString("WordPiece"));
    assert_int_equal(import(&f, 288, NULL), HT_STATUS_UNSUPPORTED);
    assert_non_null(strstr(f.err.message, "WordPiece"));
    fixture_free(&f);

    f = fixture_create();
    tiny_set_number(f.m, "bos_token_id", 5000);
    set_config(&f, "bos_token", NULL);
    assert_int_equal(import(&f, 288, NULL), HT_STATUS_FORMAT);
    assert_non_null(strstr(f.err.message, "5000"));
    fixture_free(&f);
}

/* Every prefix of a SentencePiece model, and seeded changes of a byte, give a status: no crash, no endless loop. */
static void test_hostile_sentencepiece(void** state)
{
    (void)state;
    size_t                        n      = 0;
    uint64_t                      random = 11;
    const temp_folder             folder = temp_folder_create();
    char*                         model  = ht_test_load(ht_test_source("tests/unit/data/spm.model"), &n);
    const ht_hf_tokenizer_options options = { folder.path, "llama", -1, 600, NULL };
    int                           n_ok = 0, n_refused = 0;
    for (int round = 0; round < 3000; round++) {
        char* copy = malloc(n);
        memcpy(copy, model, n);
        size_t n_copy = n;
        if (round % 2) { n_copy = (size_t)(ht_test_random(&random) % n); }
        else { copy[ht_test_random(&random) % n] = (char)ht_test_random(&random); }
        ht_meta* meta = ht_meta_create();
        temp_write(&folder, "tokenizer.model", copy, n_copy);
        if (ht_hf_tokenizer_import(meta, &options, NULL, NULL) == HT_STATUS_OK) { n_ok++; }
        else { n_refused++; }
        ht_meta_free(meta);
        free(copy);
    }
    assert_true(n_ok > 0 && n_refused > 0);
    free(model);
    temp_folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_pre_tokenizer), cmocka_unit_test(test_known_pre_tokenizers), cmocka_unit_test(test_bos_rules),
        cmocka_unit_test(test_bos_from_template),     cmocka_unit_test(test_rows_and_tokens),      cmocka_unit_test(test_forms_of_merges),
        cmocka_unit_test(test_chat_templates),        cmocka_unit_test(test_broken_files),         cmocka_unit_test(test_hostile_sentencepiece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
