#include "formats/hf_tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file.h"
#include "formats/hf_vocab.h"
#include "formats/json_value.h"
#include "formats/pre_tokenizer.h"

enum { MAX_JSON_BYTES = 256 << 20 };

/* The JSON files of a tokenizer; each is NULL when the folder lacks it. */
typedef struct tokenizer_files {
    ht_json *tokenizer, *config, *added, *model_config, *generation;
} tokenizer_files;

/* *out stays NULL when there is no such file. */
static ht_status read_optional(ht_json** out, const char* folder, const char* name, ht_error* err)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) { return ht_fail(err, HT_STATUS_ARG, "the folder's name is too long"); }
    if (!ht_file_exists(path)) { return HT_STATUS_OK; }
    return ht_json_read(out, path, MAX_JSON_BYTES, err);
}

static ht_status read_files(tokenizer_files* files, const char* folder, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    HT_TRY(read_optional(&files->tokenizer, folder, "tokenizer.json", err));
    HT_TRY(read_optional(&files->config, folder, "tokenizer_config.json", err));
    HT_TRY(read_optional(&files->added, folder, "added_tokens.json", err));
    HT_TRY(read_optional(&files->model_config, folder, "config.json", err));
    HT_TRY(read_optional(&files->generation, folder, "generation_config.json", err));
done:
    return st;
}

static void free_files(tokenizer_files* files)
{
    ht_json_free(files->tokenizer);
    ht_json_free(files->config);
    ht_json_free(files->added);
    ht_json_free(files->model_config);
    ht_json_free(files->generation);
}

/* The root of a document that may be absent. */
static const ht_json_value* root_of(const ht_json* json) { return json ? ht_json_root(json) : NULL; }

/* --- pre-tokenizer -------------------------------------------------------------------------------------------------------- */

typedef struct pattern_list {
    const char* patterns[HT_PRE_MAX_PATTERNS + 1];
    size_t      n;
    bool        understood;
} pattern_list;

static void add_pattern(pattern_list* list, const char* pattern)
{
    if (!pattern || list->n > HT_PRE_MAX_PATTERNS) { list->understood = false; }
    else { list->patterns[list->n++] = pattern; }
}

static bool member_is(const ht_json_value* object, const char* key, const char* text)
{
    const char* value = ht_json_as_string(ht_json_member(object, key));
    return value && strcmp(value, text) == 0;
}

static bool member_true(const ht_json_value* object, const char* key, bool fallback)
{
    bool value = fallback;
    (void)ht_json_as_bool(ht_json_member(object, key), &value);
    return value;
}

/* One step of tokenizer.json's pre_tokenizer as patterns of the table. */
static void collect_patterns(pattern_list* list, const ht_json_value* step)
{
    if (member_is(step, "type", "Sequence")) {
        for (const ht_json_value* s = ht_json_first(ht_json_member(step, "pretokenizers")); s; s = ht_json_next(s)) { collect_patterns(list, s); }
    } else if (member_is(step, "type", "Split")) {
        add_pattern(list, ht_json_as_string(ht_json_member(ht_json_member(step, "pattern"), "Regex")));
        const bool isolated = member_is(step, "behavior", "Isolated") && !member_true(step, "invert", false);
        const bool kept     = member_is(step, "behavior", "Removed") && member_true(step, "invert", false);
        list->understood    = list->understood && (isolated || kept);
    } else if (member_is(step, "type", "Digits")) {
        add_pattern(list, member_true(step, "individual_digits", false) ? "\\p{N}" : "\\p{N}+");
    } else if (member_is(step, "type", "ByteLevel")) {
        if (member_true(step, "use_regex", true)) { add_pattern(list, ht_pre_gpt2_pattern); }
    } else {
        list->understood = false;
    }
}

static ht_status import_pre_tokenizer(ht_meta* meta, const ht_json* tokenizer, const ht_hf_tokenizer_options* options, const ht_log* log, ht_error* err)
{
    pattern_list         list  = { .understood = true };
    const ht_json_value* step  = ht_json_member(ht_json_root(tokenizer), "pre_tokenizer");
    const ht_json_value* model = ht_json_member(ht_json_root(tokenizer), "model");
    if (options->pre_tokenizer) {
        if (!ht_pre_tokenizer_find(options->pre_tokenizer)) {
            return ht_fail(err, HT_STATUS_ARG, "--pre: unknown pre-tokenizer \"%s\"", options->pre_tokenizer);
        }
        ht_log_warn(log, "the pre-tokenizer is forced to %s", options->pre_tokenizer);
        return ht_meta_set_string(meta, "tokenizer.ggml.pre", options->pre_tokenizer, err);
    }
    collect_patterns(&list, step);
    const ht_pre_tokenizer* found = list.understood ? ht_pre_tokenizer_match(list.patterns, list.n, member_true(model, "ignore_merges", false)) : NULL;
    if (!found) {
        return ht_fail(err, HT_STATUS_UNSUPPORTED, "the pre-tokenizer is none that stock readers know (%s%.300s%s); force one with --pre NAME",
                       list.n > 0 ? "pattern " : "no pattern", list.n > 0 ? list.patterns[0] : "", list.n > 1 ? ", …" : "");
    }
    return ht_meta_set_string(meta, "tokenizer.ggml.pre", found->names[0], err);
}

/* --- vocabulary: byte-level BPE -------------------------------------------------------------------------------------------- */

/* id -> text pairs of an object ("vocab", added_tokens.json). */
static ht_status add_vocab_object(ht_hf_vocab* vocab, const ht_json_value* object, ht_token_type type, ht_error* err)
{
    for (const ht_json_value* v = ht_json_first(object); v; v = ht_json_next(v)) {
        int64_t id = -1;
        if (!ht_json_as_i64(v, &id)) { return ht_fail(err, HT_STATUS_FORMAT, "token \"%s\": its id is not a whole number", ht_json_key(v)); }
        const ht_token_type   actual = type == HT_TOKEN_TYPE_USER_DEFINED && ht_hf_looks_special(ht_json_key(v)) ? HT_TOKEN_TYPE_CONTROL : type;
        const ht_hf_token     token  = { ht_json_key(v), strlen(ht_json_key(v)), 0.0f, actual };
        const ht_status       st     = ht_hf_vocab_put(vocab, id, &token, err);
        if (st != HT_STATUS_OK) { return st; }
    }
    return HT_STATUS_OK;
}

static ht_status add_added_tokens(ht_hf_vocab* vocab, const ht_json_value* list, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    for (const ht_json_value* t = ht_json_first(list); t; t = ht_json_next(t)) {
        int64_t     id      = -1;
        const char* content = ht_json_as_string(ht_json_member(t, "content"));
        HT_CHECK(content && ht_json_as_i64(ht_json_member(t, "id"), &id), FORMAT, "an added token lacks its id or content");
        const bool        special = member_true(t, "special", false) || ht_hf_looks_special(content);
        const ht_hf_token token   = { content, strlen(content), 0.0f, special ? HT_TOKEN_TYPE_CONTROL : HT_TOKEN_TYPE_USER_DEFINED };
        HT_TRY(ht_hf_vocab_put(vocab, id, &token, err));
    }
done:
    return st;
}

/* Merges are "a b" strings, or [a, b] pairs when a part may hold a space; in GGUF a space inside a part is written as U+0120. */
static ht_status import_merges(ht_meta* meta, const ht_json_value* list, ht_error* err)
{
    ht_status  st      = HT_STATUS_OK;
    int64_t    n       = ht_json_count(list), i = 0;
    ht_string* merges  = calloc((size_t)n + 1, sizeof *merges);
    char**     owned   = calloc((size_t)n + 1, sizeof *owned);
    HT_CHECK(merges && owned, NOMEM, "%" PRId64 " merges", n);
    for (const ht_json_value* m = ht_json_first(list); m; m = ht_json_next(m), i++) {
        const char* text = ht_json_as_string(m);
        if (!text) {
            const char* a = ht_json_as_string(ht_json_first(m));
            const char* b = a ? ht_json_as_string(ht_json_next(ht_json_first(m))) : NULL;
            HT_CHECK(b, FORMAT, "merge %" PRId64 " is neither \"a b\" nor [a, b]", i);
            text = owned[i] = ht_hf_join_merge(a, b);
            HT_CHECK(text, NOMEM, "merge %" PRId64, i);
        }
        merges[i] = (ht_string){ text, strlen(text) };
    }
    HT_TRY(ht_meta_set_strings(meta, "tokenizer.ggml.merges", true, (uint64_t)n, merges, err));
done:
    for (int64_t k = 0; owned && k < n; k++) { free(owned[k]); }
    free(owned);
    free(merges);
    return st;
}

static ht_status import_bpe(ht_meta* meta, ht_hf_vocab* vocab, const tokenizer_files* files, const ht_hf_tokenizer_options* options, const ht_log* log,
                            ht_error* err)
{
    ht_status            st    = HT_STATUS_OK;
    const ht_json_value* root  = ht_json_root(files->tokenizer);
    const ht_json_value* model = ht_json_member(root, "model");
    HT_TRY(ht_meta_set_string(meta, "tokenizer.ggml.model", "gpt2", err));
    HT_TRY(import_pre_tokenizer(meta, files->tokenizer, options, log, err));
    HT_TRY(add_vocab_object(vocab, ht_json_member(model, "vocab"), HT_TOKEN_TYPE_NORMAL, err));
    HT_TRY(add_added_tokens(vocab, ht_json_member(root, "added_tokens"), err));
    HT_TRY(add_vocab_object(vocab, root_of(files->added), HT_TOKEN_TYPE_USER_DEFINED, err));
    HT_TRY(ht_hf_vocab_finish(vocab, options->n_embd_rows, options->vocab_size, log, err));
    HT_TRY(ht_hf_vocab_write(meta, vocab, false, err));
    HT_TRY(import_merges(meta, ht_json_member(model, "merges"), err));
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, "tokenizer.json"); }
    return st;
}

/* --- special tokens ---------------------------------------------------------------------------------------------------------- */

static const struct { const char* name; const char* key; } special_tokens[] = {
    { "bos", "tokenizer.ggml.bos_token_id" },       { "eos", "tokenizer.ggml.eos_token_id" },
    { "unk", "tokenizer.ggml.unknown_token_id" },   { "sep", "tokenizer.ggml.seperator_token_id" }, /* the key is spelled so */
    { "pad", "tokenizer.ggml.padding_token_id" },   { "cls", "tokenizer.ggml.cls_token_id" },
    { "mask", "tokenizer.ggml.mask_token_id" },
};
enum { N_SPECIAL = sizeof special_tokens / sizeof *special_tokens };

/* A number, or the first of a list of numbers (generation_config's eos_token_id); -1 otherwise. */
static int64_t id_member(const ht_json_value* object, const char* key)
{
    int64_t              id    = -1;
    const ht_json_value* value = ht_json_member(object, key);
    if (!ht_json_as_i64(value, &id) && ht_json_kind_of(value) == HT_JSON_KIND_ARRAY) { (void)ht_json_as_i64(ht_json_first(value), &id); }
    return id;
}

/* The id of "bos" and its like: by text from tokenizer_config.json, else by number from config.json. -1: the checkpoint has none. */
static int64_t find_special(const tokenizer_files* files, const ht_hf_vocab* vocab, const char* name)
{
    char                 key[32];
    snprintf(key, sizeof key, "%s_token", name);
    const ht_json_value* value = ht_json_member(root_of(files->config), key);
    const char*          text  = ht_json_as_string(value);
    if (!text) { text = ht_json_as_string(ht_json_member(value, "content")); }
    int64_t id = text ? ht_hf_vocab_find(vocab, text, strlen(text)) : -1;
    snprintf(key, sizeof key, "%s_token_id", name);
    if (id < 0) { id = id_member(root_of(files->model_config), key); }
    if (id < 0) { id = id_member(root_of(files->generation), key); }
    return id;
}

/* Does the post-processor's template begin (end) with this token? */
static bool template_has(const ht_json_value* processor, bool at_end, int64_t id, const ht_hf_vocab* vocab)
{
    if (member_is(processor, "type", "Sequence")) {
        for (const ht_json_value* p = ht_json_first(ht_json_member(processor, "processors")); p; p = ht_json_next(p)) {
            if (template_has(p, at_end, id, vocab)) { return true; }
        }
        return false;
    }
    if (!member_is(processor, "type", "TemplateProcessing")) { return false; }
    const ht_json_value* item = ht_json_first(ht_json_member(processor, "single"));
    while (at_end && item && ht_json_next(item)) { item = ht_json_next(item); }
    const char* text = ht_json_as_string(ht_json_member(ht_json_member(item, "SpecialToken"), "id"));
    return text && id >= 0 && ht_hf_vocab_find(vocab, text, strlen(text)) == id;
}

/* add_{bos,eos}_token: an explicit value wins, else the template tells, else nothing is written. */
static ht_status import_add_flag(ht_meta* meta, const tokenizer_files* files, const ht_hf_vocab* vocab, const char* name, int64_t id, bool at_end,
                                 const ht_hf_tokenizer_options* options, ht_error* err)
{
    char                 config_key[32], key[64];
    bool                 value     = false;
    const ht_json_value* processor = ht_json_member(root_of(files->tokenizer), "post_processor");
    snprintf(config_key, sizeof config_key, "add_%s_token", name);
    snprintf(key, sizeof key, "tokenizer.ggml.add_%s_token", name);
    if (!ht_json_as_bool(ht_json_member(root_of(files->config), config_key), &value)) {
        /* a Llama-class model with 49152 tokens (SmolLM2, Granite): no BOS although the class would add one */
        const bool no_bos = !at_end && strcmp(options->arch, "llama") == 0 && options->vocab_size == 49152;
        if (ht_json_kind_of(processor) == HT_JSON_KIND_NULL && !no_bos) { return HT_STATUS_OK; }
        value = !no_bos && template_has(processor, at_end, id, vocab);
    }
    return ht_meta_set_bool(meta, key, value, err);
}

static ht_status import_special(ht_meta* meta, const tokenizer_files* files, const ht_hf_vocab* vocab, const ht_hf_tokenizer_options* options,
                                ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    for (int i = 0; i < N_SPECIAL; i++) {
        const int64_t id = find_special(files, vocab, special_tokens[i].name);
        HT_CHECK(id < ht_hf_vocab_n(vocab), FORMAT, "%s_token_id is %" PRId64 ", the vocabulary has %" PRId64 " tokens", special_tokens[i].name, id,
                 ht_hf_vocab_n(vocab));
        if (id >= 0) { HT_TRY(ht_meta_set_u32(meta, special_tokens[i].key, (uint32_t)id, err)); }
        if (i < 2) { HT_TRY(import_add_flag(meta, files, vocab, special_tokens[i].name, id, i == 1, options, err)); }
    }
done:
    return st;
}

/* --- chat template ------------------------------------------------------------------------------------------------------------- */

static ht_status import_named_templates(ht_meta* meta, const ht_json_value* list, ht_error* err)
{
    ht_status  st    = HT_STATUS_OK;
    int64_t    n     = 0;
    ht_string* names = calloc((size_t)ht_json_count(list) + 1, sizeof *names);
    HT_CHECK(names, NOMEM, "chat templates");
    for (const ht_json_value* t = ht_json_first(list); t; t = ht_json_next(t)) {
        char        key[128];
        const char* name = ht_json_as_string(ht_json_member(t, "name"));
        const char* text = ht_json_as_string(ht_json_member(t, "template"));
        HT_CHECK(name && text && strlen(name) < 64, FORMAT, "chat_template: an entry lacks its name or template");
        if (strcmp(name, "default") == 0) {
            HT_TRY(ht_meta_set_string(meta, "tokenizer.chat_template", text, err));
            continue;
        }
        snprintf(key, sizeof key, "tokenizer.chat_template.%s", name);
        HT_TRY(ht_meta_set_string(meta, key, text, err));
        names[n++] = (ht_string){ name, strlen(name) };
    }
    if (n > 0) { HT_TRY(ht_meta_set_strings(meta, "tokenizer.chat_templates", true, (uint64_t)n, names, err)); }
done:
    free(names);
    return st;
}

static ht_status import_chat_template(ht_meta* meta, const tokenizer_files* files, const char* folder, ht_error* err)
{
    ht_status            st      = HT_STATUS_OK;
    char                 path[4096];
    char*                text    = NULL;
    size_t               n_text  = 0;
    ht_json*             wrapper = NULL;
    const ht_json_value* value   = ht_json_member(root_of(files->config), "chat_template");
    if (ht_json_as_string(value)) {
        HT_TRY(ht_meta_set_string(meta, "tokenizer.chat_template", ht_json_as_string(value), err));
    } else if (ht_json_kind_of(value) == HT_JSON_KIND_ARRAY) {
        HT_TRY(import_named_templates(meta, value, err));
    } else if (snprintf(path, sizeof path, "%s/chat_template.jinja", folder), ht_file_exists(path)) {
        HT_TRY(ht_text_read(&text, &n_text, path, 16 << 20, err));
        HT_TRY(ht_meta_set_string(meta, "tokenizer.chat_template", text, err));
    } else {
        HT_TRY(read_optional(&wrapper, folder, "chat_template.json", err));
        const char* inner = ht_json_as_string(ht_json_member(root_of(wrapper), "chat_template"));
        if (inner) { HT_TRY(ht_meta_set_string(meta, "tokenizer.chat_template", inner, err)); }
    }
done:
    free(text);
    ht_json_free(wrapper);
    return st;
}

/* --- all of it --------------------------------------------------------------------------------------------------------------- */

ht_status ht_hf_tokenizer_import(ht_meta* meta, const ht_hf_tokenizer_options* options, const ht_log* log, ht_error* err)
{
    ht_status       st    = HT_STATUS_OK;
    tokenizer_files files = { 0 };
    char            path[4096];
    ht_hf_vocab*    vocab = ht_hf_vocab_create();
    HT_CHECK(vocab, NOMEM, "vocabulary");
    HT_TRY(read_files(&files, options->folder, err));
    const ht_json_value* model       = ht_json_member(root_of(files.tokenizer), "model");
    const bool           has_bytes   = member_true(model, "byte_fallback", false);
    snprintf(path, sizeof path, "%s/tokenizer.model", options->folder);
    if (ht_file_exists(path)) {
        HT_TRY(ht_hf_import_sentencepiece(meta, vocab, path, root_of(files.added), root_of(files.config), options, log, err));
    } else if (member_is(model, "type", "BPE") && has_bytes) {
        HT_TRY(ht_hf_import_byte_fallback(meta, vocab, ht_json_root(files.tokenizer), options, log, err));
    } else if (member_is(model, "type", "BPE")) {
        HT_TRY(import_bpe(meta, vocab, &files, options, log, err));
    } else {
        const char* kind = ht_json_as_string(ht_json_member(model, "type"));
        HT_CHECK(files.tokenizer, IO, "the folder has neither tokenizer.json nor tokenizer.model");
        HT_CHECK(0, UNSUPPORTED, "tokenizer.json: model of kind %s (BPE is read)", kind ? kind : "unknown");
    }
    HT_TRY(import_special(meta, &files, vocab, options, err));
    HT_TRY(import_chat_template(meta, &files, options->folder, err));
done:
    free_files(&files);
    ht_hf_vocab_free(vocab);
    if (st != HT_STATUS_OK) { ht_error_set_file(err, options->folder); }
    return st;
}
