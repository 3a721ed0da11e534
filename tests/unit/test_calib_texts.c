/* Calibration texts: sampled evenly, held out, and what is refused. */
#include "calib/texts.h"

#include "formats/base/cpu.h"
#include "formats/source.h"
#include "tests/ht_test.h"
#include "tests/tiny_model.h"

typedef struct fixture {
    temp_folder   folder;
    ht_tokenizer* tokenizer;
    test_log      log;
    ht_ctx        ctx;
} fixture;

static void set_up(fixture* f)
{
    ht_error    err = HT_ERROR_INIT;
    ht_source*  source = NULL;
    tiny_model* tiny = tiny_create(TINY_LLAMA);
    *f = (fixture){ .folder = temp_folder_create(), .ctx = { .n_threads = 1, .isa = ht_isa_best(ht_cpu_features()) } };
    f->ctx.log = (ht_log){ test_log_keep, &f->log };
    tiny_save(tiny, &f->folder, "in");
    assert_int_equal(ht_source_open(&source, temp_path(&f->folder, "in"), NULL, &f->ctx, &err), HT_STATUS_OK);
    assert_int_equal(ht_tokenizer_create(&f->tokenizer, ht_source_meta(source), &err), HT_STATUS_OK);
    ht_source_close(source);
    tiny_free(tiny);
    f->log = (test_log){ "", 0 };
}

static void tear_down(fixture* f)
{
    ht_tokenizer_free(f->tokenizer);
    temp_folder_remove(&f->folder);
}

static const char* write_repeated(const fixture* f, const char* name, const char* word, int n)
{
    static char path[4][512];
    static int  at = 0;
    char*       text = malloc(strlen(word) * (size_t)n + 1);
    text[0] = '\0';
    for (int i = 0; i < n; i++) { memcpy(text + (size_t)i * strlen(word), word, strlen(word) + 1); }
    temp_write_text(&f->folder, name, text);
    free(text);
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s", temp_path(&f->folder, name));
    return path[at];
}

static void test_even_and_held_out(void** state)
{
    (void)state;
    fixture        f;
    ht_error       err = HT_ERROR_INIT;
    ht_calib_texts t = { 0 }, again = { 0 };
    set_up(&f);
    const char*            paths[2] = { write_repeated(&f, "long.txt", "qx7 ", 3000), write_repeated(&f, "short.txt", "zz9 ", 200) };
    const ht_calib_options options = { .n_ctx = 32, .n_chunks = 40, .held_every = 4 };
    assert_int_equal(ht_calib_texts_read(&t, paths, 2, f.tokenizer, &options, &f.ctx, &err), HT_STATUS_OK);
    assert_int_equal(t.n_chunks, 40);
    assert_int_equal(t.sources[0].n_chunks + t.sources[1].n_chunks, 40);
    assert_true(t.sources[1].n_chunks > 10); /* the small source gives all it has */
    assert_int_equal(t.source_of[0], 0);
    assert_int_equal(t.source_of[1], 1);
    int64_t n_held = 0;
    for (int64_t k = 0; k < t.n_chunks; k++) { n_held += t.is_held_out[k]; }
    assert_int_equal(n_held, t.sources[0].n_held_out + t.sources[1].n_held_out);
    assert_true(n_held >= 8 && n_held <= 10);
    assert_int_equal(ht_calib_texts_read(&again, paths, 2, f.tokenizer, &options, &f.ctx, &err), HT_STATUS_OK);
    assert_string_equal(t.sha256, again.sha256);
    ht_calib_texts_deinit(&again);
    assert_int_equal(ht_calib_texts_from_ids(&again, "self", t.ids, 320, &options, &f.ctx, &err), HT_STATUS_OK);
    assert_int_equal(ht_calib_texts_join(&t, &again, &err), HT_STATUS_OK);
    assert_int_equal(t.n_chunks, 50);
    assert_string_equal(t.sources[t.source_of[49]].name, "self");
    ht_calib_texts_deinit(&t);

    f.log = (test_log){ "", 0 };
    assert_int_equal(ht_calib_texts_read(&t, paths, 2, f.tokenizer, &(ht_calib_options){ .n_ctx = 32 }, &f.ctx, &err), HT_STATUS_OK);
    assert_contains(f.log.text, "one kind of text dominates");
    ht_calib_texts_deinit(&t);
    f.log = (test_log){ "", 0 };
    assert_int_equal(ht_calib_texts_read(&t, paths, 1, f.tokenizer, &options, &f.ctx, &err), HT_STATUS_OK);
    assert_contains(f.log.text, "a single source");
    assert_contains(f.log.text, "are few");
    ht_calib_texts_deinit(&t);
    tear_down(&f);
}

static void test_json_lines_and_folders(void** state)
{
    (void)state;
    fixture        f;
    ht_error       err = HT_ERROR_INIT;
    ht_calib_texts t = { 0 };
    set_up(&f);
    const ht_calib_options options = { .n_ctx = 16 };
    temp_write_text(&f.folder, "a.jsonl", "{\"text\": \"abcdefghijklmnopqrstuvwxyz0123456789\"}\n\n{\"messages\": [{\"role\": \"user\", \"content\": \"ABCDEFGHIJKLMNOPQRSTUVWXYZ\"}]}\n");
    const char* path = temp_path(&f.folder, "a.jsonl");
    assert_int_equal(ht_calib_texts_read(&t, &path, 1, f.tokenizer, &options, &f.ctx, &err), HT_STATUS_OK);
    assert_true(t.n_chunks >= 2);
    ht_calib_texts_deinit(&t);
    temp_write_text(&f.folder, "b.jsonl", "{\"text\": \"a\"}\n{\"other\": 1}\n");
    path = temp_path(&f.folder, "b.jsonl");
    assert_int_equal(ht_calib_texts_read(&t, &path, 1, f.tokenizer, &options, &f.ctx, &err), HT_STATUS_FORMAT);
    assert_contains(err.message, "line 2");
    err = (ht_error)HT_ERROR_INIT;
    temp_write_text(&f.folder, "c.jsonl", "{\"text\": \"a\"}\nnot json\n");
    path = temp_path(&f.folder, "c.jsonl");
    assert_int_equal(ht_calib_texts_read(&t, &path, 1, f.tokenizer, &options, &f.ctx, &err), HT_STATUS_FORMAT);
    assert_contains(err.message, "line 2");
    err = (ht_error)HT_ERROR_INIT;
    tiny_make_folder(&f.folder, "texts");
    path = temp_path(&f.folder, "texts");
    assert_int_equal(ht_calib_texts_read(&t, &path, 1, f.tokenizer, &options, &f.ctx, &err), HT_STATUS_ARG);
    assert_contains(err.message, "no files");
    err = (ht_error)HT_ERROR_INIT;
    temp_write_text(&f.folder, "texts/1.txt", "abcdefghijklmnopqrstuvwxyz0123456789");
    path = temp_path(&f.folder, "texts");
    assert_int_equal(ht_calib_texts_read(&t, &path, 1, f.tokenizer, &options, &f.ctx, &err), HT_STATUS_OK);
    ht_calib_texts_deinit(&t);
    tear_down(&f);
}

static void test_what_is_refused(void** state)
{
    (void)state;
    static const struct { const char* bytes; size_t n; ht_status status; const char* says; } bad[] = {
        { "", 0, HT_STATUS_ARG, "empty" },
        { "short", 5, HT_STATUS_ARG, "fewer than one chunk of 16" },
        { "\xFF\xFE" "a\0b\0", 6, HT_STATUS_FORMAT, "UTF-16" },
        { "ab\0cd", 5, HT_STATUS_FORMAT, "NUL byte at 2" },
        { "\xE9\xE8\xE7\xE6\xE9\xE8\xE7\xE6", 8, HT_STATUS_FORMAT, "not UTF-8" },
    };
    fixture        f;
    ht_calib_texts t = { 0 };
    set_up(&f);
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        ht_error err = HT_ERROR_INIT;
        temp_write(&f.folder, "bad.txt", bad[k].bytes, bad[k].n);
        const char* path = temp_path(&f.folder, "bad.txt");
        assert_int_equal(ht_calib_texts_read(&t, &path, 1, f.tokenizer, &(ht_calib_options){ .n_ctx = 16 }, &f.ctx, &err), bad[k].status);
        assert_contains(err.message, bad[k].says);
    }
    ht_error    err = HT_ERROR_INIT;
    const char* path = temp_path(&f.folder, "absent.txt");
    assert_int_equal(ht_calib_texts_read(&t, &path, 1, f.tokenizer, &(ht_calib_options){ .n_ctx = 16 }, &f.ctx, &err), HT_STATUS_IO);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_even_and_held_out), cmocka_unit_test(test_json_lines_and_folders), cmocka_unit_test(test_what_is_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
