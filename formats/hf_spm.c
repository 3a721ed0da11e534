/* SentencePiece vocabularies: tokenizer.model (a protobuf), and tokenizer.json's BPE with byte fallback, which is the same thing rewritten. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "formats/base/name_map.h"
#include "formats/hf_vocab.h"

enum { MAX_MODEL_BYTES = 64 << 20 };

/*
 * The protobuf wire format, as far as it is needed: a message is fields, a field is a varint (number << 3 | wire type) and
 *   wire type 0: varint    1: 8 bytes    2: varint length, bytes    5: 4 bytes
 * Source: Protocol Buffers, "Encoding"; field numbers: sentencepiece_model.proto.
 */
typedef struct span {
    const unsigned char* at;
    const unsigned char* end;
} span;

typedef struct field {
    uint32_t number, wire;
    uint64_t value; /* varints; little-endian bits of fixed ones */
    span     bytes; /* wire type 2 */
} field;

static bool take_varint(span* s, uint64_t* out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && s->at < s->end; shift += 7) {
        const unsigned char byte = *s->at++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) {
            *out = value;
            return true;
        }
    }
    return false;
}

/* The next field; false at the end (then s->at == s->end) and for broken data. */
static bool take_field(span* s, field* f)
{
    uint64_t key = 0, n = 0;
    if (s->at == s->end || !take_varint(s, &key)) { return false; }
    *f = (field){ (uint32_t)(key >> 3), (uint32_t)(key & 7), 0, { NULL, NULL } };
    const size_t left = (size_t)(s->end - s->at);
    switch (f->wire) {
    case 0: return take_varint(s, &f->value);
    case 1:
        if (left < 8) { return false; }
        f->value = ht_load_u64le(s->at);
        s->at += 8;
        return true;
    case 2:
        if (!take_varint(s, &n) || n > (uint64_t)(s->end - s->at)) { return false; }
        f->bytes = (span){ s->at, s->at + n };
        s->at += n;
        return true;
    case 5:
        if (left < 4) { return false; }
        f->value = ht_load_u32le(s->at);
        s->at += 4;
        return true;
    default: return false;
    }
}

typedef struct spm_facts {
    uint64_t model_type; /* 1 unigram, 2 BPE */
    bool     add_dummy_prefix;
    int64_t  n_pieces;
} spm_facts;

static ht_status broken(const span* whole, const span* s, ht_error* err)
{
    return ht_fail_at(err, HT_STATUS_FORMAT, (uint64_t)(s->at - whole->at), "not a SentencePiece model: broken protobuf");
}

/* SentencePiece { piece = 1, score = 2, type = 3 }; type numbers are those of tokenizer.ggml.token_type. */
static ht_status take_piece(ht_hf_vocab* vocab, spm_facts* facts, span s, const span* whole, ht_error* err)
{
    ht_hf_token token = { "", 0, 0.0f, HT_TOKEN_TYPE_NORMAL };
    field       f;
    while (take_field(&s, &f)) {
        if (f.number == 1 && f.wire == 2) {
            token.text    = (const char*)f.bytes.at;
            token.n_bytes = (size_t)(f.bytes.end - f.bytes.at);
        }
        if (f.number == 2 && f.wire == 5) {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(&token.score, &bits, sizeof bits);
        }
        if (f.number == 3 && f.wire == 0 && f.value >= 1 && f.value <= 6) { token.type = (ht_token_type)f.value; }
    }
    if (s.at != s.end) { return broken(whole, &s, err); }
    return ht_hf_vocab_put(vocab, facts->n_pieces++, &token, err);
}

/* TrainerSpec { model_type = 3 }, NormalizerSpec { add_dummy_prefix = 3 } */
static void take_spec(spm_facts* facts, uint32_t message, span s)
{
    field f;
    while (take_field(&s, &f)) {
        if (message == 2 && f.number == 3 && f.wire == 0) { facts->model_type = f.value; }
        if (message == 3 && f.number == 3 && f.wire == 0) { facts->add_dummy_prefix = f.value != 0; }
    }
}

/* ModelProto { pieces = 1 (repeated), trainer_spec = 2, normalizer_spec = 3 } */
static ht_status take_model(ht_hf_vocab* vocab, spm_facts* facts, span whole, ht_error* err)
{
    span      s  = whole;
    field     f;
    ht_status st = HT_STATUS_OK;
    while (st == HT_STATUS_OK && take_field(&s, &f)) {
        if (f.wire != 2) { continue; }
        if (f.number == 1) { st = take_piece(vocab, facts, f.bytes, &whole, err); }
        else { take_spec(facts, f.number, f.bytes); }
    }
    if (st == HT_STATUS_OK && s.at != s.end) { st = broken(&whole, &s, err); }
    return st;
}

static ht_status put_added(ht_hf_vocab* vocab, int64_t id, const char* text, bool special, ht_error* err)
{
    const ht_hf_token token = { text, strlen(text), -1000.0f,
                                special || ht_hf_looks_special(text) ? HT_TOKEN_TYPE_CONTROL : HT_TOKEN_TYPE_USER_DEFINED };
    return ht_hf_vocab_put(vocab, id, &token, err);
}

/* added_tokens.json { text: id }, then tokenizer_config.json's added_tokens_decoder { "id": { content, special } } for ids beyond the model's. */
static ht_status add_tokens(ht_hf_vocab* vocab, int64_t n_pieces, const ht_json_value* added, const ht_json_value* config, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    for (const ht_json_value* v = ht_json_first(added); v; v = ht_json_next(v)) {
        int64_t id = -1;
        HT_CHECK(ht_json_as_i64(v, &id), FORMAT, "added_tokens.json: \"%s\": the id is not a whole number", ht_json_key(v));
        if (id >= n_pieces) { HT_TRY(put_added(vocab, id, ht_json_key(v), false, err)); }
    }
    for (const ht_json_value* v = ht_json_first(ht_json_member(config, "added_tokens_decoder")); v; v = ht_json_next(v)) {
        char*       end     = NULL;
        const long  id      = strtol(ht_json_key(v), &end, 10);
        const char* content = ht_json_as_string(ht_json_member(v, "content"));
        bool        special = false;
        (void)ht_json_as_bool(ht_json_member(v, "special"), &special);
        HT_CHECK(content && *end == '\0', FORMAT, "tokenizer_config.json: added_tokens_decoder: entry \"%s\" is not { content, special }", ht_json_key(v));
        if (id >= n_pieces) { HT_TRY(put_added(vocab, id, content, special, err)); }
    }
done:
    return st;
}

ht_status ht_hf_import_sentencepiece(ht_meta* meta, ht_hf_vocab* vocab, const char* model_path, const ht_json_value* added_tokens,
                                     const ht_json_value* config, const ht_hf_tokenizer_options* options, const ht_log* log, ht_error* err)
{
    ht_status      st    = HT_STATUS_OK;
    ht_file*       file  = NULL;
    unsigned char* data  = NULL;
    spm_facts      facts = { 1, true, 0 };
    HT_TRY(ht_file_open(&file, model_path, err));
    HT_CHECK(ht_file_size(file) <= MAX_MODEL_BYTES, BOUNDS, "%" PRIu64 " bytes, over the limit of %d", ht_file_size(file), MAX_MODEL_BYTES);
    data = malloc((size_t)ht_file_size(file) + 1);
    HT_CHECK(data, NOMEM, "SentencePiece model");
    HT_TRY(ht_file_read_at(file, 0, data, (size_t)ht_file_size(file), err));
    HT_TRY(take_model(vocab, &facts, (span){ data, data + ht_file_size(file) }, err));
    HT_CHECK(facts.n_pieces > 0, FORMAT, "the SentencePiece model has no pieces");
    HT_CHECK(facts.model_type == 2, UNSUPPORTED, "a SentencePiece model of type %" PRIu64 " (2, BPE, is read)", facts.model_type);
    HT_TRY(add_tokens(vocab, facts.n_pieces, added_tokens, config, err));
    HT_TRY(ht_hf_vocab_finish(vocab, options->n_embd_rows, options->vocab_size, log, err));
    HT_TRY(ht_meta_set_string(meta, "tokenizer.ggml.model", "llama", err));
    HT_TRY(ht_meta_set_string(meta, "tokenizer.ggml.pre", "default", err));
    HT_TRY(ht_hf_vocab_write(meta, vocab, true, err));
    if (!facts.add_dummy_prefix) { HT_TRY(ht_meta_set_bool(meta, "tokenizer.ggml.add_space_prefix", false, err)); }
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, model_path); }
    free(data);
    ht_file_close(file);
    return st;
}

/* --- tokenizer.json with byte fallback ------------------------------------------------------------------------------------------ */

/* Rank of the merge that makes each token, by the token's text; *out_texts are the owned texts behind the map. */
static ht_status rank_merges(ht_name_map* ranks, char** texts, const ht_json_value* merges, ht_error* err)
{
    ht_status st   = HT_STATUS_OK;
    int64_t   rank = 0;
    for (const ht_json_value* m = ht_json_first(merges); m; m = ht_json_next(m), rank++) {
        const char* pair  = ht_json_as_string(m);
        const char* a     = pair ? pair : ht_json_as_string(ht_json_first(m));
        const char* space = pair ? strchr(pair, ' ') : NULL;
        const char* b     = pair ? (space ? space + 1 : NULL) : ht_json_as_string(ht_json_next(ht_json_first(m)));
        HT_CHECK(a && b, FORMAT, "merge %" PRId64 " is neither \"a b\" nor [a, b]", rank);
        const size_t n_a = pair ? (size_t)(space - pair) : strlen(a), n_b = strlen(b);
        char*        text = texts[rank] = malloc(n_a + n_b + 1);
        HT_CHECK(text, NOMEM, "merge %" PRId64, rank);
        memcpy(text, a, n_a);
        memcpy(text + n_a, b, n_b + 1);
        HT_CHECK(ht_name_map_add(ranks, text, n_a + n_b, rank) >= 0, NOMEM, "merge %" PRId64, rank); /* the first rank stays */
    }
done:
    return st;
}

static bool is_byte_token(const char* text)
{
    unsigned value = 0;
    int      used  = 0;
    return strlen(text) == 6 && sscanf(text, "<0x%2X>%n", &value, &used) == 1 && used == 6;
}

/*
 * The runtime merges the pair whose token has the highest score; HF merges the pair of lowest rank. So the score is minus the rank, as in
 * real SentencePiece BPE models, and tokens that no merge makes come last.
 */
static ht_status put_ranked_tokens(ht_hf_vocab* vocab, const ht_json_value* object, const ht_name_map* ranks, int64_t n_merges, const char* unk,
                                   ht_error* err)
{
    for (const ht_json_value* v = ht_json_first(object); v; v = ht_json_next(v)) {
        const char*   text = ht_json_key(v);
        const int64_t rank = ht_name_map_find(ranks, text, strlen(text));
        int64_t       id   = -1;
        if (!ht_json_as_i64(v, &id)) { return ht_fail(err, HT_STATUS_FORMAT, "token \"%s\": its id is not a whole number", text); }
        const ht_token_type type  = is_byte_token(text) ? HT_TOKEN_TYPE_BYTE : unk && strcmp(text, unk) == 0 ? HT_TOKEN_TYPE_UNKNOWN : HT_TOKEN_TYPE_NORMAL;
        const ht_hf_token   token = { text, strlen(text), rank >= 0 ? (float)-rank : (float)-(n_merges + id), type };
        const ht_status     st    = ht_hf_vocab_put(vocab, id, &token, err);
        if (st != HT_STATUS_OK) { return st; }
    }
    return HT_STATUS_OK;
}

static ht_status put_added_list(ht_hf_vocab* vocab, const ht_json_value* list, const char* unk, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    for (const ht_json_value* t = ht_json_first(list); t; t = ht_json_next(t)) {
        int64_t     id      = -1;
        bool        special = false;
        const char* text    = ht_json_as_string(ht_json_member(t, "content"));
        HT_CHECK(text && ht_json_as_i64(ht_json_member(t, "id"), &id), FORMAT, "an added token lacks its id or content");
        (void)ht_json_as_bool(ht_json_member(t, "special"), &special);
        if (unk && strcmp(text, unk) == 0) { continue; } /* keeps its own type */
        HT_TRY(put_added(vocab, id, text, special, err));
    }
done:
    return st;
}

/* A normalizer that prepends "▁" to the text, directly or inside a sequence; or the newer Metaspace pre-tokenizer that does. */
static bool prepends_space(const ht_json_value* step)
{
    const char* type   = ht_json_as_string(ht_json_member(step, "type"));
    const char* scheme = ht_json_as_string(ht_json_member(step, "prepend_scheme"));
    if (!type) { return false; }
    if (strcmp(type, "Prepend") == 0) { return true; }
    if (strcmp(type, "Metaspace") == 0) { return !scheme || strcmp(scheme, "never") != 0; }
    if (strcmp(type, "Sequence") != 0) { return false; }
    const ht_json_value* list = ht_json_member(step, "normalizers");
    if (!list) { list = ht_json_member(step, "pretokenizers"); }
    for (const ht_json_value* s = ht_json_first(list); s; s = ht_json_next(s)) {
        if (prepends_space(s)) { return true; }
    }
    return false;
}

ht_status ht_hf_import_byte_fallback(ht_meta* meta, ht_hf_vocab* vocab, const ht_json_value* tokenizer, const ht_hf_tokenizer_options* options,
                                     const ht_log* log, ht_error* err)
{
    ht_status            st       = HT_STATUS_OK;
    const ht_json_value* model    = ht_json_member(tokenizer, "model");
    const ht_json_value* merges   = ht_json_member(model, "merges");
    const char*          unk      = ht_json_as_string(ht_json_member(model, "unk_token"));
    const int64_t        n_merges = ht_json_count(merges);
    char**               texts    = calloc((size_t)n_merges + 1, sizeof *texts);
    ht_name_map*         ranks    = ht_name_map_create();
    HT_CHECK(texts && ranks, NOMEM, "%" PRId64 " merges", n_merges);
    HT_TRY(rank_merges(ranks, texts, merges, err));
    HT_TRY(put_ranked_tokens(vocab, ht_json_member(model, "vocab"), ranks, n_merges, unk, err));
    HT_TRY(put_added_list(vocab, ht_json_member(tokenizer, "added_tokens"), unk, err));
    HT_TRY(ht_hf_vocab_finish(vocab, options->n_embd_rows, options->vocab_size, log, err));
    HT_TRY(ht_meta_set_string(meta, "tokenizer.ggml.model", "llama", err));
    HT_TRY(ht_meta_set_string(meta, "tokenizer.ggml.pre", "default", err));
    HT_TRY(ht_hf_vocab_write(meta, vocab, true, err));
    const bool prefix = prepends_space(ht_json_member(tokenizer, "normalizer")) || prepends_space(ht_json_member(tokenizer, "pre_tokenizer"));
    if (!prefix) { HT_TRY(ht_meta_set_bool(meta, "tokenizer.ggml.add_space_prefix", false, err)); }
done:
    for (int64_t i = 0; texts && i < n_merges; i++) { free(texts[i]); }
    free(texts);
    ht_name_map_free(ranks);
    return st;
}
