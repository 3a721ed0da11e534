#include "formats/hf_vocab.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/name_map.h"

enum { MAX_TOKENS = 1 << 20 }; /* the largest known vocabularies have 262144 tokens; what a false id may cost is 64 MB */

struct ht_hf_vocab {
    ht_hf_token* tokens; /* text NULL: nothing at this id yet; texts are owned */
    int64_t      n, capacity;
    ht_name_map* by_text; /* made by finish */
};

ht_hf_vocab* ht_hf_vocab_create(void) { return calloc(1, sizeof(ht_hf_vocab)); }

static void free_text(ht_hf_token* token)
{
    free((void*)(uintptr_t)token->text);
    token->text = NULL;
}

void ht_hf_vocab_free(ht_hf_vocab* vocab)
{
    if (!vocab) { return; }
    for (int64_t i = 0; i < vocab->n; i++) { free_text(&vocab->tokens[i]); }
    free(vocab->tokens);
    ht_name_map_free(vocab->by_text);
    free(vocab);
}

static bool reserve(ht_hf_vocab* vocab, int64_t n)
{
    if (n > vocab->capacity) {
        const int64_t capacity = n * 2;
        ht_hf_token*  grown    = realloc(vocab->tokens, (size_t)capacity * sizeof *grown);
        if (!grown) { return false; }
        memset(grown + vocab->capacity, 0, (size_t)(capacity - vocab->capacity) * sizeof *grown);
        vocab->tokens   = grown;
        vocab->capacity = capacity;
    }
    if (n > vocab->n) { vocab->n = n; }
    return true;
}

ht_status ht_hf_vocab_put(ht_hf_vocab* vocab, int64_t id, const ht_hf_token* token, ht_error* err)
{
    ht_status st   = HT_STATUS_OK;
    char*     text = NULL;
    HT_CHECK(id >= 0 && id < MAX_TOKENS, FORMAT, "token \"%.*s\": id %" PRId64 " is out of range",
             token->n_bytes < 100 ? (int)token->n_bytes : 100, token->text, id);
    HT_CHECK(reserve(vocab, id + 1), NOMEM, "%" PRId64 " tokens", id + 1);
    ht_hf_token* old = &vocab->tokens[id];
    HT_CHECK(!old->text || (old->n_bytes == token->n_bytes && memcmp(old->text, token->text, token->n_bytes) == 0), FORMAT,
             "token id %" PRId64 " is both \"%.100s\" and \"%.100s\"", id, old->text, token->text);
    text = malloc(token->n_bytes + 1);
    HT_CHECK(text, NOMEM, "token %" PRId64, id);
    memcpy(text, token->text, token->n_bytes);
    text[token->n_bytes] = '\0';
    free_text(old);
    *old      = *token;
    old->text = text;
done:
    return st;
}

ht_status ht_hf_vocab_finish(ht_hf_vocab* vocab, int64_t n_embd_rows, int64_t vocab_size, const ht_log* log, ht_error* err)
{
    ht_status     st       = HT_STATUS_OK;
    const int64_t n_given  = vocab->n;
    int64_t       n_padded = 0;
    HT_CHECK(n_given > 0, FORMAT, "the vocabulary is empty");
    HT_CHECK(n_given <= n_embd_rows, FORMAT, "the tokenizer needs %" PRId64 " rows (largest id %" PRId64 "), the embedding has %" PRId64, n_given,
             n_given - 1, n_embd_rows);
    if (vocab_size >= 0 && vocab_size != n_embd_rows) {
        ht_log_warn(log, "vocab_size is %" PRId64 " but the embedding has %" PRId64 " rows; the rows win", vocab_size, n_embd_rows);
    }
    vocab->by_text = ht_name_map_create();
    HT_CHECK(vocab->by_text && reserve(vocab, n_embd_rows), NOMEM, "%" PRId64 " tokens", n_embd_rows);
    for (int64_t i = 0; i < vocab->n; i++) {
        ht_hf_token* token = &vocab->tokens[i];
        if (!token->text) {
            char name[32];
            snprintf(name, sizeof name, "[PAD%" PRId64 "]", i);
            const ht_hf_token pad = { name, strlen(name), -10000.0f, HT_TOKEN_TYPE_UNUSED };
            HT_TRY(ht_hf_vocab_put(vocab, i, &pad, err));
            n_padded++;
        }
        const int64_t index = ht_name_map_add(vocab->by_text, token->text, token->n_bytes, i);
        HT_CHECK(index >= 0, NOMEM, "tokens by text");
        HT_CHECK(index == i, FORMAT, "token ids %" PRId64 " and %" PRId64 " have the same text \"%.100s\"", index, i, token->text);
    }
    if (n_padded > 0) { ht_log_info(log, "%" PRId64 " ids without a token became unused [PAD…] entries", n_padded); }
done:
    return st;
}

ht_status ht_hf_vocab_write(ht_meta* meta, const ht_hf_vocab* vocab, bool with_scores, ht_error* err)
{
    ht_status  st     = HT_STATUS_OK;
    ht_string* texts  = calloc((size_t)vocab->n, sizeof *texts);
    int32_t*   types  = calloc((size_t)vocab->n, sizeof *types);
    float*     scores = calloc((size_t)vocab->n, sizeof *scores);
    HT_CHECK(texts && types && scores, NOMEM, "%" PRId64 " tokens", vocab->n);
    for (int64_t i = 0; i < vocab->n; i++) {
        texts[i]  = (ht_string){ vocab->tokens[i].text, vocab->tokens[i].n_bytes };
        types[i]  = (int32_t)vocab->tokens[i].type;
        scores[i] = vocab->tokens[i].score;
    }
    HT_TRY(ht_meta_set_strings(meta, "tokenizer.ggml.tokens", true, (uint64_t)vocab->n, texts, err));
    if (with_scores) { HT_TRY(ht_meta_set_values(meta, "tokenizer.ggml.scores", HT_META_TYPE_F32, true, (uint64_t)vocab->n, scores, err)); }
    HT_TRY(ht_meta_set_values(meta, "tokenizer.ggml.token_type", HT_META_TYPE_I32, true, (uint64_t)vocab->n, types, err));
done:
    free(texts);
    free(types);
    free(scores);
    return st;
}

int64_t ht_hf_vocab_n(const ht_hf_vocab* vocab) { return vocab->n; }

int64_t ht_hf_vocab_find(const ht_hf_vocab* vocab, const char* text, size_t n_bytes) { return ht_name_map_find(vocab->by_text, text, n_bytes); }

/* Copy with each space as the two bytes of U+0120; returns the end. */
static char* append_part(char* to, const char* part)
{
    for (; *part; part++) {
        if (*part == ' ') {
            *to++ = '\xC4';
            *to++ = '\xA0';
        } else {
            *to++ = *part;
        }
    }
    return to;
}

char* ht_hf_join_merge(const char* a, const char* b)
{
    char* out = malloc(2 * (strlen(a) + strlen(b)) + 2);
    if (!out) { return NULL; }
    char* to = append_part(out, a);
    *to++    = ' ';
    to       = append_part(to, b);
    *to      = '\0';
    return out;
}

static bool starts_and_ends(const char* text, const char* start, const char* end)
{
    const size_t n = strlen(text), n_start = strlen(start), n_end = strlen(end);
    return n >= n_start + n_end && strncmp(text, start, n_start) == 0 && strcmp(text + n - n_end, end) == 0;
}

bool ht_hf_looks_special(const char* text)
{
    static const char* const whole[] = { "<pad>", "<mask>", "<2mass>", "[@BOS@]" };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        if (strcmp(text, whole[i]) == 0) { return true; }
    }
    return starts_and_ends(text, "<|", "|>") || starts_and_ends(text, "<\xEF\xBD\x9C", "\xEF\xBD\x9C>") || starts_and_ends(text, "<unused", ">");
}
