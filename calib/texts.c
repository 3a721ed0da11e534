#include "calib/texts.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utf8proc.h>

#include "formats/base/file.h"
#include "formats/json_value.h"

enum {
    MAX_TEXT_BYTES  = 1 << 30,
    MAX_FOLDER_TEXT = 4096, /* files of a folder                                                    */
    FEW_TOKENS      = 8192  /* the study's Hessians of 1536 columns came from 12 288 and 24 600     */
};

/* Text put together from files. */
typedef struct text {
    char*  data;
    size_t n, n_max;
} text;

static ht_status text_add(text* t, const char* data, size_t n, ht_error* err)
{
    if (t->n + n + 2 > t->n_max) {
        const size_t n_max = 2 * (t->n + n) + 64;
        char*        grown = realloc(t->data, n_max);
        if (!grown) { return ht_fail(err, HT_STATUS_NOMEM, "%zu bytes of text", n_max); }
        t->data  = grown;
        t->n_max = n_max;
    }
    memcpy(t->data + t->n, data, n);
    t->n += n;
    t->data[t->n] = '\0';
    return HT_STATUS_OK;
}

static bool ends_with(const char* s, const char* end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* --- reading --------------------------------------------------------------------------------------------------------------------- */

static ht_status check_encoding(const char* data, size_t n, const char* path, const ht_ctx* ctx, ht_error* err)
{
    ht_status st      = HT_STATUS_OK;
    size_t    n_bad   = 0;
    const bool utf16 = n >= 2 && ((data[0] == '\xFF' && data[1] == '\xFE') || (data[0] == '\xFE' && data[1] == '\xFF'));
    HT_CHECK(!utf16, FORMAT, "the text is UTF-16 (it starts with its byte order mark); convert it to UTF-8");
    HT_CHECK(!memchr(data, 0, n), FORMAT, "the text holds a NUL byte at %zu: binary data, or UTF-16", (size_t)((const char*)memchr(data, 0, n) - data));
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t     c;
        const utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t*)data + i, (utf8proc_ssize_t)(n - i), &c);
        n_bad += k <= 0;
        i += k <= 0 ? 1 : (size_t)k;
    }
    HT_CHECK(n_bad * 10 < n || n_bad < 3, FORMAT, "%.1f %% of the bytes are not UTF-8 (Latin-1?); convert the text to UTF-8", 100.0 * (double)n_bad / (double)n);
    if (n_bad > 0) { ht_log_warn(&ctx->log, "%s: %zu bytes are not UTF-8 (%.3f %%)", path, n_bad, 100.0 * (double)n_bad / (double)n); }
done:
    return st;
}

/* "text", or "prompt" + "completion", or the contents of "messages". */
static ht_status add_json_line(text* t, const char* line, size_t n, size_t number, ht_error* err)
{
    ht_status            st   = HT_STATUS_OK;
    ht_json*             json = NULL;
    bool                 any  = false;
    static const char*   keys[] = { "text", "prompt", "completion" };
    ht_error             inner = HT_ERROR_INIT;
    HT_CHECK(ht_json_parse(&json, line, n, NULL, &inner) == HT_STATUS_OK, FORMAT, "line %zu: %.400s", number, inner.message);
    const ht_json_value* root = ht_json_root(json);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const char* value = ht_json_as_string(ht_json_member(root, keys[k]));
        if (!value) { continue; }
        HT_TRY(text_add(t, value, strlen(value), err));
        any = true;
    }
    for (const ht_json_value* m = ht_json_first(ht_json_member(root, "messages")); m; m = ht_json_next(m)) {
        const char* value = ht_json_as_string(ht_json_member(m, "content"));
        if (!value) { continue; }
        HT_TRY(text_add(t, value, strlen(value), err));
        HT_TRY(text_add(t, "\n", 1, err));
        any = true;
    }
    HT_CHECK(any, FORMAT, "line %zu: no \"text\", \"prompt\", \"completion\" or \"messages\"", number);
    HT_TRY(text_add(t, "\n", 1, err));
done:
    ht_json_free(json);
    return st;
}

static ht_status add_json_lines(text* t, const char* data, size_t n, ht_error* err)
{
    size_t number = 1;
    for (size_t at = 0; at < n; number++) {
        const char*  end    = memchr(data + at, '\n', n - at);
        const size_t length = end ? (size_t)(end - data) - at : n - at;
        if (strspn(data + at, " \t\r") < length) {
            const ht_status st = add_json_line(t, data + at, length, number, err);
            if (st != HT_STATUS_OK) { return st; }
        }
        at += length + 1;
    }
    return HT_STATUS_OK;
}

static ht_status add_file(text* t, const char* path, const ht_ctx* ctx, ht_error* err)
{
    ht_status st   = HT_STATUS_OK;
    char*     data = NULL;
    size_t    n    = 0;
    HT_TRY(ht_text_read(&data, &n, path, MAX_TEXT_BYTES, err));
    HT_TRY(check_encoding(data, n, path, ctx, err));
    if (ends_with(path, ".jsonl") || ends_with(path, ".jsonl.gz")) { HT_TRY(add_json_lines(t, data, n, err)); }
    else { HT_TRY(text_add(t, data, n, err)); }
    HT_CHECK(t->n <= MAX_TEXT_BYTES, BOUNDS, "more than %d bytes of text", MAX_TEXT_BYTES);
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    free(data);
    return st;
}

static int compare_names(const void* a, const void* b) { return strcmp(*(char* const*)a, *(char* const*)b); }

/* All plain files whose name does not start with a dot, by name. */
static ht_status add_folder(text* t, const char* path, const ht_ctx* ctx, ht_error* err)
{
    ht_status st      = HT_STATUS_OK;
    DIR*      dir     = opendir(path);
    size_t    n_files = 0;
    char**    files   = calloc(MAX_FOLDER_TEXT, sizeof *files);
    HT_CHECK(files, NOMEM, "folder");
    HT_CHECK(dir, IO, "cannot read the folder");
    for (struct dirent* entry = readdir(dir); entry; entry = readdir(dir)) {
        struct stat  info;
        const size_t n = strlen(path) + strlen(entry->d_name) + 2;
        if (entry->d_name[0] == '.') { continue; }
        char* file = malloc(n);
        HT_CHECK(file, NOMEM, "folder");
        snprintf(file, n, "%s/%s", path, entry->d_name);
        if (stat(file, &info) != 0 || !S_ISREG(info.st_mode) || n_files == MAX_FOLDER_TEXT) { free(file); }
        else { files[n_files++] = file; }
    }
    HT_CHECK(n_files > 0, ARG, "the folder holds no files");
    qsort(files, n_files, sizeof *files, compare_names);
    for (size_t i = 0; i < n_files; i++) { HT_TRY(add_file(t, files[i], ctx, err)); }
done:
    for (size_t i = 0; files && i < n_files; i++) { free(files[i]); }
    free(files);
    if (dir) { (void)closedir(dir); }
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    return st;
}

/* --- cutting and sampling ------------------------------------------------------------------------------------------------------------- */

/* The tokens of one source. */
typedef struct tokens {
    int32_t* ids;
    int64_t  n, n_chunks, n_taken;
} tokens;

/*
 * n_wanted chunks over the sources in turn: each source gives one per round while it has some, so a small source gives all it has and the others share the rest.
 */
static void share_chunks(tokens* sources, int n, int64_t n_wanted)
{
    for (bool any = true; any && n_wanted > 0;) {
        any = false;
        for (int k = 0; k < n && n_wanted > 0; k++) {
            if (sources[k].n_taken == sources[k].n_chunks) { continue; }
            sources[k].n_taken++;
            n_wanted--;
            any = true;
        }
    }
}

static ht_status name_data(ht_calib_texts* t, ht_error* err)
{
    ht_status    st = HT_STATUS_OK;
    const size_t n_ids = (size_t)(t->n_chunks * t->n_ctx) * sizeof *t->ids, n_flags = (size_t)t->n_chunks * sizeof *t->is_held_out;
    char*        all = malloc(n_ids + n_flags + 1);
    HT_CHECK(all, NOMEM, "calibration text");
    memcpy(all, t->ids, n_ids);
    memcpy(all + n_ids, t->is_held_out, n_flags);
    HT_TRY(ht_sha256_hex(t->sha256, all, n_ids + n_flags, err));
done:
    free(all);
    return st;
}

/* The chunks taken from all sources, in turn; chunk j of a source's n_taken is its chunk j * n_chunks / n_taken. */
static ht_status take_chunks(ht_calib_texts* t, const tokens* sources, int32_t bos, const ht_calib_options* options, ht_error* err)
{
    ht_status st    = HT_STATUS_OK;
    int64_t   total = 0, most = 0;
    for (int k = 0; k < t->n_sources; k++) {
        total += sources[k].n_taken;
        most = sources[k].n_taken > most ? sources[k].n_taken : most;
    }
    t->n_ctx       = options->n_ctx;
    t->ids         = malloc((size_t)(total * options->n_ctx + 1) * sizeof *t->ids);
    t->is_held_out = calloc((size_t)total + 1, sizeof *t->is_held_out);
    t->source_of   = calloc((size_t)total + 1, sizeof *t->source_of);
    HT_CHECK(t->ids && t->is_held_out && t->source_of, NOMEM, "%" PRId64 " chunks of text", total);
    for (int64_t round = 0; round < most; round++) {
        for (int k = 0; k < t->n_sources; k++) {
            if (round >= sources[k].n_taken) { continue; }
            const int64_t from = round * sources[k].n_chunks / sources[k].n_taken;
            int32_t*      ids  = t->ids + t->n_chunks * options->n_ctx;
            memcpy(ids, sources[k].ids + from * options->n_ctx, (size_t)options->n_ctx * sizeof *ids);
            if (bos >= 0) { ids[0] = bos; }
            t->is_held_out[t->n_chunks] = options->held_every > 0 && round % options->held_every == options->held_every - 1;
            t->source_of[t->n_chunks]   = k;
            t->sources[k].n_chunks++;
            t->sources[k].n_held_out += t->is_held_out[t->n_chunks];
            t->n_chunks++;
        }
    }
    HT_TRY(name_data(t, err));
done:
    return st;
}

static void warn_of_data(const ht_calib_texts* t, const ht_ctx* ctx)
{
    for (int k = 0; k < t->n_sources; k++) {
        const ht_calib_source* s = &t->sources[k];
        if (s->n_chunks == 0) { ht_log_warn(&ctx->log, "%s: %" PRId64 " tokens are fewer than one chunk of %" PRId64 "; it is left out", s->name, s->n_tokens, t->n_ctx); }
        if (t->n_sources > 1 && 2 * s->n_chunks > t->n_chunks) {
            ht_log_warn(&ctx->log, "%s: one kind of text dominates (%" PRId64 " of %" PRId64 " chunks)", s->name, s->n_chunks, t->n_chunks);
        }
    }
    if (t->n_sources == 1) { ht_log_warn(&ctx->log, "%s: a single source; if it is one kind of text, what is fitted to it may not hold for others", t->sources[0].name); }
    if (t->n_chunks * t->n_ctx < FEW_TOKENS) {
        ht_log_warn(&ctx->log, "%" PRId64 " tokens of calibration text are few (25 000 and more are better)", t->n_chunks * t->n_ctx);
    }
}

static ht_status read_source(ht_calib_source* s, tokens* out, const char* path, const ht_tokenizer* tokenizer, const ht_calib_options* options, const ht_ctx* ctx,
                             ht_error* err)
{
    ht_status   st = HT_STATUS_OK;
    text        t  = { 0 };
    struct stat info;
    const bool  is_folder = strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    snprintf(s->name, sizeof s->name, "%s", path);
    HT_TRY(is_folder ? add_folder(&t, path, ctx, err) : add_file(&t, path, ctx, err));
    HT_CHECK(t.n > 0, ARG, "the text is empty");
    HT_TRY(ht_sha256_hex(s->sha256, t.data, t.n, err));
    HT_TRY(ht_tokenizer_encode(tokenizer, t.data, t.n, true, options->parse_special, &out->ids, &out->n, err));
    HT_CHECK(out->n > 0, ARG, "the text tokenizes to nothing");
    s->n_tokens   = out->n;
    out->n_chunks = out->n / options->n_ctx;
done:
    free(t.data);
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    return st;
}

ht_status ht_calib_texts_read(ht_calib_texts* out, const char* const* paths, int n_paths, const ht_tokenizer* tokenizer, const ht_calib_options* options,
                              const ht_ctx* ctx, ht_error* err)
{
    ht_status      st      = HT_STATUS_OK;
    ht_calib_texts t       = { .n_sources = n_paths };
    int64_t        n_all   = 0, n_tokens = 0;
    tokens*        sources = calloc((size_t)n_paths + 1, sizeof *sources);
    t.sources = calloc((size_t)n_paths + 1, sizeof *t.sources);
    HT_CHECK(sources && t.sources, NOMEM, "calibration texts");
    for (int k = 0; k < n_paths; k++) {
        HT_TRY(read_source(&t.sources[k], &sources[k], paths[k], tokenizer, options, ctx, err));
        n_all += sources[k].n_chunks;
        n_tokens += sources[k].n;
    }
    HT_CHECK(n_all > 0, ARG, "%" PRId64 " tokens of calibration text are fewer than one chunk of %" PRId64, n_tokens, options->n_ctx);
    share_chunks(sources, n_paths, options->n_chunks > 0 && options->n_chunks < n_all ? options->n_chunks : n_all);
    HT_TRY(take_chunks(&t, sources, ht_tokenizer_adds_bos(tokenizer) ? ht_tokenizer_bos(tokenizer) : -1, options, err));
    warn_of_data(&t, ctx);
    *out = t;
    t    = (ht_calib_texts){ 0 };
done:
    if (st != HT_STATUS_OK && n_paths == 1) { ht_error_set_file(err, paths[0]); }
    for (int k = 0; sources && k < n_paths; k++) { free(sources[k].ids); }
    free(sources);
    ht_calib_texts_deinit(&t);
    return st;
}

ht_status ht_calib_texts_from_ids(ht_calib_texts* out, const char* name, const int32_t* ids, int64_t n_ids, const ht_calib_options* options, const ht_ctx* ctx,
                                  ht_error* err)
{
    ht_status      st = HT_STATUS_OK;
    ht_calib_texts t  = { .n_sources = 1 };
    tokens         source = { .ids = malloc((size_t)(n_ids + 1) * sizeof *source.ids), .n = n_ids, .n_chunks = n_ids / options->n_ctx };
    t.sources = calloc(1, sizeof *t.sources);
    (void)ctx;
    HT_CHECK(source.ids && t.sources, NOMEM, "calibration text");
    HT_CHECK(source.n_chunks > 0, ARG, "%" PRId64 " tokens are fewer than one chunk of %" PRId64, n_ids, options->n_ctx);
    memcpy(source.ids, ids, (size_t)n_ids * sizeof *ids);
    snprintf(t.sources[0].name, sizeof t.sources[0].name, "%s", name);
    t.sources[0].n_tokens = n_ids;
    HT_TRY(ht_sha256_hex(t.sources[0].sha256, ids, (size_t)n_ids * sizeof *ids, err));
    share_chunks(&source, 1, options->n_chunks > 0 && options->n_chunks < source.n_chunks ? options->n_chunks : source.n_chunks);
    HT_TRY(take_chunks(&t, &source, -1, options, err));
    *out = t;
    t    = (ht_calib_texts){ 0 };
done:
    free(source.ids);
    ht_calib_texts_deinit(&t);
    return st;
}

ht_status ht_calib_texts_join(ht_calib_texts* a, ht_calib_texts* b, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    int32_t*  ids  = realloc(a->ids, (size_t)((a->n_chunks + b->n_chunks) * a->n_ctx + 1) * sizeof *ids);
    if (ids) { a->ids = ids; }
    bool* held = realloc(a->is_held_out, (size_t)(a->n_chunks + b->n_chunks + 1) * sizeof *held);
    if (held) { a->is_held_out = held; }
    int* source_of = realloc(a->source_of, (size_t)(a->n_chunks + b->n_chunks + 1) * sizeof *source_of);
    if (source_of) { a->source_of = source_of; }
    ht_calib_source* sources = realloc(a->sources, (size_t)(a->n_sources + b->n_sources) * sizeof *sources);
    if (sources) { a->sources = sources; }
    HT_CHECK(ids && held && source_of && sources, NOMEM, "calibration text");
    HT_CHECK(a->n_ctx == b->n_ctx, ARG, "chunks of %" PRId64 " and of %" PRId64 " tokens", a->n_ctx, b->n_ctx);
    memcpy(a->ids + a->n_chunks * a->n_ctx, b->ids, (size_t)(b->n_chunks * b->n_ctx) * sizeof *b->ids);
    memcpy(a->is_held_out + a->n_chunks, b->is_held_out, (size_t)b->n_chunks * sizeof *b->is_held_out);
    memcpy(a->sources + a->n_sources, b->sources, (size_t)b->n_sources * sizeof *b->sources);
    for (int64_t i = 0; i < b->n_chunks; i++) { a->source_of[a->n_chunks + i] = a->n_sources + b->source_of[i]; }
    a->n_chunks += b->n_chunks;
    a->n_sources += b->n_sources;
    ht_calib_texts_deinit(b);
    HT_TRY(name_data(a, err));
done:
    return st;
}

void ht_calib_texts_deinit(ht_calib_texts* t)
{
    if (!t) { return; }
    free(t->ids);
    free(t->is_held_out);
    free(t->source_of);
    free(t->sources);
    *t = (ht_calib_texts){ 0 };
}
