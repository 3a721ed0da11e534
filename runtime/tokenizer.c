#include "runtime/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/vocab.h"

#define UNDERSCORE "\xE2\x96\x81" /* U+2581, SentencePiece's space */

struct ht_tokenizer {
    ht_vocab     vocab;
    ht_bpe*      bpe;      /* NULL: SentencePiece                                                     */
    ht_specials* specials; /* tokens that are looked for in text                                      */
    int32_t      bos, eos, end_ids[32], n_end_ids;
    bool         adds_bos, adds_eos, adds_space_prefix;
};

/* --- creation ---------------------------------------------------------------------------------------------------------------- */

static ht_status read_vocab(ht_vocab* v, const ht_meta* meta, bool is_bpe, ht_error* err)
{
    ht_status         st     = HT_STATUS_OK;
    const ht_meta_kv* tokens = NULL;
    const ht_meta_kv* types  = NULL;
    const ht_meta_kv* scores = NULL;
    size_t            n_text = 0;
    HT_TRY(ht_meta_get_array(meta, "tokenizer.ggml.tokens", true, HT_META_TYPE_STRING, &tokens, err));
    HT_TRY(ht_meta_get_array(meta, "tokenizer.ggml.token_type", false, HT_META_TYPE_I32, &types, err));
    HT_TRY(ht_meta_get_array(meta, "tokenizer.ggml.scores", !is_bpe, HT_META_TYPE_F32, &scores, err));
    HT_CHECK(tokens->n_values > 0 && tokens->n_values < INT32_MAX / 4, FORMAT, "tokenizer.ggml.tokens has %" PRIu64 " entries", tokens->n_values);
    HT_CHECK(!types || types->n_values == tokens->n_values, FORMAT, "tokenizer.ggml.token_type has %" PRIu64 " entries for %" PRIu64 " tokens",
             types->n_values, tokens->n_values);
    HT_CHECK(!scores || scores->n_values == tokens->n_values, FORMAT, "tokenizer.ggml.scores has %" PRIu64 " entries for %" PRIu64 " tokens",
             scores->n_values, tokens->n_values);
    for (uint64_t i = 0; i < tokens->n_values; i++) { n_text += tokens->strings[i].n_bytes; }
    v->n_tokens = (int32_t)tokens->n_values;
    v->text     = malloc(n_text + 1);
    v->tokens   = calloc((size_t)v->n_tokens, sizeof *v->tokens);
    v->types    = calloc((size_t)v->n_tokens, sizeof *v->types);
    v->scores   = calloc((size_t)v->n_tokens, sizeof *v->scores);
    v->by_text  = ht_name_map_create();
    HT_CHECK(v->text && v->tokens && v->types && v->scores && v->by_text, NOMEM, "%" PRId32 " tokens", v->n_tokens);
    char* to = v->text;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        const ht_text_span raw  = { tokens->strings[i].data, tokens->strings[i].n_bytes };
        int32_t            type = HT_TOKEN_TYPE_NORMAL;
        size_t             n    = 0;
        if (types) { memcpy(&type, (const char*)types->data + (size_t)i * sizeof type, sizeof type); }
        if (scores) { memcpy(&v->scores[i], (const char*)scores->data + (size_t)i * sizeof(float), sizeof(float)); }
        v->types[i] = type >= 1 && type <= 6 ? (uint8_t)type : HT_TOKEN_TYPE_NORMAL;
        if (!(is_bpe && v->types[i] == HT_TOKEN_TYPE_NORMAL && ht_bpe_bytes_of(raw, to, &n))) {
            n = raw.n_bytes;
            if (n > 0) { memcpy(to, raw.data, n); }
        }
        v->tokens[i] = (ht_text_span){ to, n };
        to += n;
    }
done:
    return st;
}

static bool is_encodable(const ht_vocab* v, int32_t id)
{
    return v->types[id] != HT_TOKEN_TYPE_CONTROL && v->types[id] != HT_TOKEN_TYPE_UNUSED && v->types[id] != HT_TOKEN_TYPE_UNKNOWN && v->tokens[id].n_bytes > 0;
}

static ht_status index_vocab(ht_vocab* v, bool is_bpe, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    for (int i = 0; i < 256; i++) { v->byte_ids[i] = -1; }
    for (int32_t i = 0; i < v->n_tokens; i++) {
        const ht_text_span text = v->tokens[i];
        unsigned           byte = 0;
        if (!is_bpe && v->types[i] == HT_TOKEN_TYPE_BYTE && text.n_bytes == 6) {
            char hex[3] = { text.data[3], text.data[4], '\0' };
            if (sscanf(hex, "%2x", &byte) == 1) { v->byte_ids[byte & 255] = i; }
            continue;
        }
        if (!is_encodable(v, i)) { continue; }
        HT_CHECK(ht_name_map_add(v->by_text, text.data, text.n_bytes, i) >= 0, NOMEM, "tokens by text"); /* of twins the first counts */
        if (is_bpe && text.n_bytes == 1) { v->byte_ids[(unsigned char)text.data[0]] = i; }
    }
done:
    return st;
}

static ht_status read_id(int32_t* out, const ht_tokenizer* t, const ht_meta* meta, const char* key, ht_error* err)
{
    int64_t         id = -1;
    const ht_status st = ht_meta_get_i64(meta, key, false, &id, err);
    if (st != HT_STATUS_OK) { return st; }
    if (id == UINT32_MAX) { id = -1; } /* how some writers say "none" */
    if (id < -1 || id >= t->vocab.n_tokens) { return ht_fail(err, HT_STATUS_FORMAT, "%s is %" PRId64 ", there are %" PRId32 " tokens", key, id, t->vocab.n_tokens); }
    *out = (int32_t)id;
    return HT_STATUS_OK;
}

static void add_end(ht_tokenizer* t, int32_t id)
{
    for (int32_t i = 0; i < t->n_end_ids; i++) {
        if (t->end_ids[i] == id) { return; }
    }
    if (id >= 0 && t->n_end_ids < (int32_t)(sizeof t->end_ids / sizeof *t->end_ids)) { t->end_ids[t->n_end_ids++] = id; }
}

/* Texts that end a turn in the models that have them, whatever else their files say (llama.cpp, llama-vocab.cpp). */
static bool is_end_text(ht_text_span text)
{
    static const char* const texts[] = {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>",
        "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "[e~[",
        ("<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"), /* two literals: \x9Ce would be one escape */
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (text.n_bytes == strlen(texts[i]) && memcmp(text.data, texts[i], text.n_bytes) == 0) { return true; }
    }
    return false;
}

/* Such tokens are control tokens and end a generation, even when a file says they are ordinary. */
static void mark_end_texts(ht_tokenizer* t)
{
    for (int32_t i = 0; i < t->vocab.n_tokens; i++) {
        if (!is_end_text(t->vocab.tokens[i])) { continue; }
        t->vocab.types[i] = HT_TOKEN_TYPE_CONTROL;
        add_end(t, i);
    }
}

/* The ends that a file names by key. */
static ht_status read_ends(ht_tokenizer* t, const ht_meta* meta, ht_error* err)
{
    static const char* const keys[] = { "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id" };
    add_end(t, t->eos);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int32_t         id = -1;
        const ht_status st = read_id(&id, t, meta, keys[i], err);
        if (st != HT_STATUS_OK) { return st; }
        add_end(t, id);
    }
    return HT_STATUS_OK;
}

ht_status ht_tokenizer_create(ht_tokenizer** out, const ht_meta* meta, ht_error* err)
{
    ht_status     st    = HT_STATUS_OK;
    const char*   model = NULL;
    ht_tokenizer* t     = calloc(1, sizeof *t);
    HT_CHECK(t, NOMEM, "tokenizer");
    HT_TRY(ht_meta_get_string(meta, "tokenizer.ggml.model", true, &model, err));
    const bool is_bpe = strcmp(model, "gpt2") == 0;
    HT_CHECK(is_bpe || strcmp(model, "llama") == 0, UNSUPPORTED, "tokenizer.ggml.model: \"%s\" (gpt2 and llama are read)", model);
    HT_TRY(read_vocab(&t->vocab, meta, is_bpe, err));
    mark_end_texts(t);
    HT_TRY(index_vocab(&t->vocab, is_bpe, err));
    if (is_bpe) { HT_TRY(ht_bpe_create(&t->bpe, meta, &t->vocab, err)); }
    HT_TRY(ht_specials_create(&t->specials, &t->vocab, err));
    t->bos = t->eos      = -1;
    t->adds_bos          = is_bpe ? ht_bpe_adds_bos(t->bpe) : true;
    t->adds_space_prefix = !is_bpe;
    HT_TRY(read_id(&t->bos, t, meta, "tokenizer.ggml.bos_token_id", err));
    HT_TRY(read_id(&t->eos, t, meta, "tokenizer.ggml.eos_token_id", err));
    HT_TRY(ht_meta_get_bool(meta, "tokenizer.ggml.add_bos_token", false, &t->adds_bos, err));
    HT_TRY(ht_meta_get_bool(meta, "tokenizer.ggml.add_eos_token", false, &t->adds_eos, err));
    HT_TRY(ht_meta_get_bool(meta, "tokenizer.ggml.add_space_prefix", false, &t->adds_space_prefix, err));
    t->adds_bos = t->adds_bos && t->bos >= 0;
    t->adds_eos = t->adds_eos && t->eos >= 0;
    HT_TRY(read_ends(t, meta, err));
    *out = t;
    t    = NULL;
done:
    ht_tokenizer_free(t);
    return st;
}

void ht_tokenizer_free(ht_tokenizer* t)
{
    if (!t) { return; }
    ht_bpe_free(t->bpe);
    free(t->vocab.text);
    free(t->vocab.tokens);
    free(t->vocab.types);
    free(t->vocab.scores);
    ht_name_map_free(t->vocab.by_text);
    ht_specials_free(t->specials);
    free(t);
}

/* --- text between special tokens --------------------------------------------------------------------------------------------- */

/* Bytes and value of the character at `s`; 0 when it is broken. Overlong forms and surrogates pass, as in llama.cpp. */
static size_t decode_character(const unsigned char* s, size_t left, uint32_t* code)
{
    const size_t n = s[0] < 0x80 ? 1 : (s[0] & 0xE0) == 0xC0 ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : (s[0] & 0xF8) == 0xF0 ? 4 : 0;
    if (n == 0 || n > left) { return 0; }
    *code = n == 1 ? s[0] : s[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) { return 0; }
        *code = *code << 6 | (s[i] & 0x3Fu);
    }
    return *code > 0x10FFFF ? 0 : n;
}

static char* put_character(char* to, uint32_t code)
{
    if (code < 0x80) { *to++ = (char)code; }
    else if (code < 0x800) {
        *to++ = (char)(0xC0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *to++ = (char)(0xE0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3F));
        *to++ = (char)(0x80 | (code & 0x3F));
    } else {
        *to++ = (char)(0xF0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3F));
        *to++ = (char)(0x80 | (code >> 6 & 0x3F));
        *to++ = (char)(0x80 | (code & 0x3F));
    }
    return to;
}

/* BPE: each broken byte becomes U+FFFD, overlong forms their short one. *out is malloc'd. */
static ht_status repair_utf8(ht_text_span text, char** out, size_t* out_n, ht_error* err)
{
    char* repaired = malloc(3 * text.n_bytes + 1);
    char* to       = repaired;
    if (!repaired) { return ht_fail(err, HT_STATUS_NOMEM, "a text of %zu bytes", text.n_bytes); }
    for (size_t at = 0; at < text.n_bytes;) {
        uint32_t     code = 0xFFFD;
        const size_t n    = decode_character((const unsigned char*)text.data + at, text.n_bytes - at, &code);
        to = put_character(to, n > 0 ? code : 0xFFFD);
        at += n > 0 ? n : 1;
    }
    *out   = repaired;
    *out_n = (size_t)(to - repaired);
    return HT_STATUS_OK;
}

/* SentencePiece: spaces become U+2581, with one in front when asked. *out is malloc'd. */
static ht_status escape_spaces(ht_text_span text, bool with_prefix, char** out, size_t* out_n, ht_error* err)
{
    char* escaped = malloc(3 * (text.n_bytes + 1) + 1);
    char* to      = escaped;
    if (!escaped) { return ht_fail(err, HT_STATUS_NOMEM, "a text of %zu bytes", text.n_bytes); }
    if (with_prefix) { to = put_character(to, 0x2581); }
    for (size_t i = 0; i < text.n_bytes; i++) {
        if (text.data[i] == ' ') { to = put_character(to, 0x2581); }
        else { *to++ = text.data[i]; }
    }
    *out   = escaped;
    *out_n = (size_t)(to - escaped);
    return HT_STATUS_OK;
}

static ht_status encode_plain(const ht_tokenizer* t, ht_text_span text, bool after_special, ht_ids* out, ht_error* err)
{
    char*     clean   = NULL;
    size_t    n_clean = 0;
    ht_status st      = t->bpe ? repair_utf8(text, &clean, &n_clean, err)
                               : escape_spaces(text, t->adds_space_prefix && after_special, &clean, &n_clean, err);
    if (st == HT_STATUS_OK) {
        const ht_text_span span = { clean, n_clean };
        st = t->bpe ? ht_bpe_encode(t->bpe, &t->vocab, span, out, err) : ht_spm_encode(&t->vocab, span, out, err);
    }
    free(clean);
    return st;
}

/* --- encoding ----------------------------------------------------------------------------------------------------------------- */

ht_status ht_tokenizer_encode(const ht_tokenizer* t, const char* text, size_t n_bytes, bool add_special, bool parse_special, int32_t** out_ids,
                              int64_t* out_n, ht_error* err)
{
    ht_status     st            = HT_STATUS_OK;
    ht_ids        ids           = { 0 };
    ht_fragment*  list          = NULL;
    int64_t       n_list        = 0;
    bool          after_special = true;
    if (add_special && t->adds_bos) { ht_ids_push(&ids, t->bos); }
    if (n_bytes > 0) { HT_TRY(ht_specials_cut(t->specials, &t->vocab, (ht_text_span){ text, n_bytes }, parse_special, &list, &n_list, err)); }
    for (int64_t i = 0; i < n_list; i++) {
        if (list[i].id >= 0) { ht_ids_push(&ids, list[i].id); }
        else { HT_TRY(encode_plain(t, list[i].text, after_special, &ids, err)); }
        after_special = list[i].id >= 0;
    }
    if (add_special && t->adds_eos) { ht_ids_push(&ids, t->eos); }
    if (!ids.data && !ids.failed) { ids.data = malloc(sizeof *ids.data); } /* no ids: still something to free */
    HT_CHECK(ids.data && !ids.failed, NOMEM, "token ids");
    *out_ids = ids.data;
    *out_n   = ids.n;
    ids.data = NULL;
done:
    free(list);
    free(ids.data);
    return st;
}

/* --- back to text ---------------------------------------------------------------------------------------------------------------- */

static size_t copy_out(ht_text_span text, char* buf, size_t n_buf)
{
    const size_t n = text.n_bytes < n_buf ? text.n_bytes : n_buf;
    if (n > 0) { memcpy(buf, text.data, n); }
    return n;
}

size_t ht_tokenizer_decode(const ht_tokenizer* t, int32_t id, bool show_special, char* buf, size_t n_buf)
{
    if (id < 0 || id >= t->vocab.n_tokens) { return 0; }
    const ht_text_span text = t->vocab.tokens[id];
    switch (t->vocab.types[id]) {
    case HT_TOKEN_TYPE_CONTROL: return show_special ? copy_out(text, buf, n_buf) : 0;
    case HT_TOKEN_TYPE_UNUSED: return 0;
    case HT_TOKEN_TYPE_UNKNOWN: return show_special ? copy_out((ht_text_span){ "\xE2\x96\x85", 3 }, buf, n_buf) : 0;
    case HT_TOKEN_TYPE_BYTE:
        for (int byte = 0; byte < 256 && n_buf > 0; byte++) {
            if (t->vocab.byte_ids[byte] == id) {
                buf[0] = (char)byte;
                return 1;
            }
        }
        return 0;
    default: break;
    }
    if (t->bpe) { return copy_out(text, buf, n_buf); }
    size_t n = 0;
    for (size_t i = 0; i < text.n_bytes && n < n_buf;) {
        const bool is_space = text.n_bytes - i >= 3 && memcmp(text.data + i, UNDERSCORE, 3) == 0;
        buf[n++] = is_space ? ' ' : text.data[i];
        i += is_space ? 3 : 1;
    }
    return n;
}

int32_t ht_tokenizer_n_tokens(const ht_tokenizer* t) { return t->vocab.n_tokens; }
int32_t ht_tokenizer_bos(const ht_tokenizer* t) { return t->bos; }
int32_t ht_tokenizer_eos(const ht_tokenizer* t) { return t->eos; }
bool    ht_tokenizer_adds_bos(const ht_tokenizer* t) { return t->adds_bos; }

bool ht_tokenizer_is_end(const ht_tokenizer* t, int32_t id)
{
    for (int32_t i = 0; i < t->n_end_ids; i++) {
        if (t->end_ids[i] == id) { return true; }
    }
    return false;
}
