/*
 * Tokenizers imported from files and run: equal to the libraries `tokenizers` and `sentencepiece` on recorded strings (tests/unit/data, made by
 * make_tokens.py), special tokens, broken UTF-8, the way back, hostile metadata, long texts.
 */
#include "tests/temp_folder.h"

#include <time.h>

#include "formats/hf_tokenizer.h"
#include "runtime/tokenizer.h"

enum { MAX_LINE = 8192 };

/* The metadata of a folder that holds one fixture under the name a checkpoint has. */
static ht_meta* import_fixture(const char* fixture, const char* as, int64_t n_rows)
{
    const temp_folder       folder  = temp_folder_create();
    char                    source[256];
    size_t                  n       = 0;
    ht_error                err     = HT_ERROR_INIT;
    ht_meta*                meta    = ht_meta_create();
    ht_hf_tokenizer_options options = { folder.path, "llama", -1, n_rows, NULL };
    snprintf(source, sizeof source, "tests/unit/data/%s", fixture);
    char* data = ht_test_load(ht_test_source(source), &n);
    temp_write(&folder, as, data, n);
    free(data);
    if (ht_hf_tokenizer_import(meta, &options, NULL, &err) != HT_STATUS_OK) { fail_msg("%s: %s", fixture, err.message); }
    temp_folder_remove(&folder);
    return meta;
}

static ht_tokenizer* create(const ht_meta* meta)
{
    ht_error      err = HT_ERROR_INIT;
    ht_tokenizer* t   = NULL;
    if (ht_tokenizer_create(&t, meta, &err) != HT_STATUS_OK) { fail_msg("%s", err.message); }
    return t;
}

static ht_tokenizer* open_fixture(const char* fixture, const char* as, int64_t n_rows)
{
    ht_meta*      meta = import_fixture(fixture, as, n_rows);
    ht_tokenizer* t    = create(meta);
    ht_meta_free(meta);
    return t;
}

/* Lines of tokens.tsv of one kind against the tokenizer. */
static void check_recorded(const ht_tokenizer* t, const char* kind)
{
    char*  all  = ht_test_load(ht_test_source("tests/unit/data/tokens.tsv"), NULL);
    char*  save = NULL;
    int    n_lines = 0, n_bad = 0;
    for (char* line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const size_t n_kind = strcspn(line, "\t");
        if (n_kind != strlen(kind) || strncmp(line, kind, n_kind) != 0) { continue; }
        const char* hex    = line + n_kind + 1;
        const size_t n_hex = strcspn(hex, "\t");
        char        text[MAX_LINE];
        int32_t*    ids = NULL;
        int64_t     n = 0, i = 0;
        for (size_t k = 0; k < n_hex / 2; k++) {
            unsigned byte = 0;
            assert_int_equal(sscanf(hex + 2 * k, "%2x", &byte), 1);
            text[k] = (char)byte;
        }
        assert_int_equal(ht_tokenizer_encode(t, text, n_hex / 2, false, false, &ids, &n, NULL), HT_STATUS_OK);
        char* at  = line + n_kind + 1 + n_hex;
        bool  bad = false;
        while (*at) {
            char*      end = NULL;
            const long id  = strtol(at, &end, 10);
            if (end == at) { break; }
            bad = bad || i >= n || ids[i] != id;
            i++;
            at = end;
        }
        bad = bad || i != n;
        if (bad) { print_error("%s: %.*s: %d ids recorded, %d found\n", kind, (int)n_hex, hex, (int)i, (int)n); }
        n_bad += bad;
        n_lines++;
        free(ids);
    }
    free(all);
    assert_true(n_lines >= 25);
    assert_int_equal(n_bad, 0);
}

static void test_bpe_equals_tokenizers(void** state)
{
    (void)state;
    ht_tokenizer* t = open_fixture("bpe.json", "tokenizer.json", 288);
    check_recorded(t, "bpe");
    ht_tokenizer_free(t);
}

static void test_byte_fallback_equals_tokenizers(void** state)
{
    (void)state;
    ht_tokenizer* t = open_fixture("fallback.json", "tokenizer.json", 1024);
    check_recorded(t, "fallback");
    ht_tokenizer_free(t);
}

static void test_spm_equals_sentencepiece(void** state)
{
    (void)state;
    ht_tokenizer* t = open_fixture("spm.model", "tokenizer.model", 600);
    check_recorded(t, "spm");
    ht_tokenizer_free(t);
}

static void test_special_tokens(void** state)
{
    (void)state;
    ht_tokenizer* t    = open_fixture("bpe.json", "tokenizer.json", 288);
    const char*   text = "the</s> the";
    int32_t*      ids  = NULL;
    int64_t       n    = 0;
    assert_int_equal(ht_tokenizer_encode(t, text, strlen(text), false, true, &ids, &n, NULL), HT_STATUS_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ids[1], 285);
    free(ids);
    assert_int_equal(ht_tokenizer_encode(t, text, strlen(text), false, false, &ids, &n, NULL), HT_STATUS_OK);
    assert_int_equal(n, 6); /* the < / s > the */
    free(ids);
    assert_true(ht_tokenizer_is_end(t, 285));
    ht_tokenizer_free(t);
}

/* encode, decode: the same bytes, for every byte value and for text. */
static void test_there_and_back(void** state)
{
    (void)state;
    ht_tokenizer* t = open_fixture("bpe.json", "tokenizer.json", 288);
    char          text[512], back[1024];
    size_t        n_text = 0, n_back = 0;
    for (int c = 1; c < 0x500; c += 5) { /* characters of one and two bytes */
        if (c < 0x80) { text[n_text++] = (char)c; }
        else if (n_text + 2 < sizeof text) { text[n_text++] = (char)(0xC0 | c >> 6), text[n_text++] = (char)(0x80 | (c & 63)); }
    }
    int32_t* ids = NULL;
    int64_t  n   = 0;
    assert_int_equal(ht_tokenizer_encode(t, text, n_text, false, false, &ids, &n, NULL), HT_STATUS_OK);
    for (int64_t i = 0; i < n; i++) { n_back += ht_tokenizer_decode(t, ids[i], false, back + n_back, sizeof back - n_back); }
    assert_int_equal(n_back, n_text);
    assert_memory_equal(back, text, n_text);
    assert_int_equal(ht_tokenizer_decode(t, 284, false, back, sizeof back), 0); /* control tokens only on request */
    assert_int_equal(ht_tokenizer_decode(t, 284, true, back, sizeof back), 3);
    assert_int_equal(ht_tokenizer_decode(t, -1, true, back, sizeof back), 0);
    assert_int_equal(ht_tokenizer_decode(t, 288, true, back, sizeof back), 0);
    free(ids);
    ht_tokenizer_free(t);
}

static double encode_seconds(const ht_tokenizer* t, const char* text, size_t n_bytes)
{
    int32_t*      ids   = NULL;
    int64_t       n     = 0;
    const clock_t start = clock();
    assert_int_equal(ht_tokenizer_encode(t, text, n_bytes, false, false, &ids, &n, NULL), HT_STATUS_OK);
    assert_true(n > 0);
    free(ids);
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* One endless word: eight times the text takes about eight times as long, not sixty-four times. */
static void check_long_word(const ht_tokenizer* t)
{
    enum { SMALL = 1 << 15, LARGE = 1 << 18 };
    char* text = malloc(LARGE);
    memset(text, 'e', LARGE);
    const double small = encode_seconds(t, text, SMALL), large = encode_seconds(t, text, LARGE);
    assert_true(large < 32.0 * small + 0.5);
    free(text);
}

static void test_long_words_stay_linear(void** state)
{
    (void)state;
    ht_tokenizer* bpe = open_fixture("bpe.json", "tokenizer.json", 288);
    ht_tokenizer* spm = open_fixture("spm.model", "tokenizer.model", 600);
    check_long_word(bpe);
    check_long_word(spm);
    ht_tokenizer_free(bpe);
    ht_tokenizer_free(spm);
}

/* bad-inputs K1 7 and their like: ill-typed or inconsistent metadata is refused by name. */
static void refused(ht_meta* meta, ht_status expected, const char* word)
{
    ht_error      err = HT_ERROR_INIT;
    ht_tokenizer* t   = NULL;
    assert_int_equal(ht_tokenizer_create(&t, meta, &err), expected);
    assert_null(t);
    if (!strstr(err.message, word)) { fail_msg("\"%s\" does not say \"%s\"", err.message, word); }
    ht_meta_free(meta);
}

static void test_hostile_metadata_is_refused(void** state)
{
    (void)state;
    static const uint8_t  bytes[600];
    static const double   doubles[600];
    static const uint32_t words[600];
    const ht_string       merge = { "qq zz", 5 }, shapeless = { "q", 1 };
    ht_meta*              meta  = import_fixture("spm.model", "tokenizer.model", 600);
    ht_meta_set_values(meta, "tokenizer.ggml.scores", HT_META_TYPE_U8, true, 600, bytes, NULL);
    refused(meta, HT_STATUS_FORMAT, "tokenizer.ggml.scores: expected f32 array, found u8 array");
    meta = import_fixture("spm.model", "tokenizer.model", 600);
    ht_meta_set_values(meta, "tokenizer.ggml.token_type", HT_META_TYPE_F64, true, 600, doubles, NULL);
    refused(meta, HT_STATUS_FORMAT, "tokenizer.ggml.token_type");
    meta = import_fixture("spm.model", "tokenizer.model", 600);
    ht_meta_set_values(meta, "tokenizer.ggml.tokens", HT_META_TYPE_U32, true, 600, words, NULL);
    refused(meta, HT_STATUS_FORMAT, "tokenizer.ggml.tokens");
    meta = import_fixture("spm.model", "tokenizer.model", 600);
    ht_meta_set_values(meta, "tokenizer.ggml.scores", HT_META_TYPE_F32, true, 3, words, NULL);
    refused(meta, HT_STATUS_FORMAT, "3 entries");
    meta = import_fixture("bpe.json", "tokenizer.json", 288);
    ht_meta_set_string(meta, "tokenizer.ggml.pre", "banana", NULL);
    refused(meta, HT_STATUS_UNSUPPORTED, "banana");
    meta = import_fixture("bpe.json", "tokenizer.json", 288);
    ht_meta_set_string(meta, "tokenizer.ggml.model", "t5", NULL);
    refused(meta, HT_STATUS_UNSUPPORTED, "t5");
    meta = import_fixture("bpe.json", "tokenizer.json", 288);
    ht_meta_set_strings(meta, "tokenizer.ggml.merges", true, 1, &merge, NULL);
    refused(meta, HT_STATUS_FORMAT, "no token");
    meta = import_fixture("bpe.json", "tokenizer.json", 288);
    ht_meta_set_strings(meta, "tokenizer.ggml.merges", true, 1, &shapeless, NULL);
    refused(meta, HT_STATUS_FORMAT, "a b");
    meta = import_fixture("bpe.json", "tokenizer.json", 288);
    ht_meta_set_u32(meta, "tokenizer.ggml.bos_token_id", 288, NULL);
    refused(meta, HT_STATUS_FORMAT, "288");
    meta = import_fixture("bpe.json", "tokenizer.json", 288);
    ht_meta_remove(meta, "tokenizer.ggml.merges");
    refused(meta, HT_STATUS_FORMAT, "tokenizer.ggml.merges is missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe_equals_tokenizers),       cmocka_unit_test(test_byte_fallback_equals_tokenizers),
        cmocka_unit_test(test_spm_equals_sentencepiece),    cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_there_and_back),              cmocka_unit_test(test_long_words_stay_linear),
        cmocka_unit_test(test_hostile_metadata_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
