/*
 * A vocabulary on its way from tokenizer files into metadata: tokens by id, filled from several places, then checked and written at once.
 * Used by hf_tokenizer.c (byte-level BPE) and hf_spm.c (SentencePiece) only.
 */
#ifndef HT_FORMATS_HF_VOCAB_H
#define HT_FORMATS_HF_VOCAB_H

#include "formats/hf_tokenizer.h"
#include "formats/json_value.h"

/* tokenizer.ggml.token_type; the numbers are part of the format. */
typedef enum ht_token_type {
    HT_TOKEN_TYPE_NORMAL = 1, HT_TOKEN_TYPE_UNKNOWN, HT_TOKEN_TYPE_CONTROL, HT_TOKEN_TYPE_USER_DEFINED, HT_TOKEN_TYPE_UNUSED, HT_TOKEN_TYPE_BYTE
} ht_token_type;

typedef struct ht_hf_token {
    const char*   text;
    size_t        n_bytes;
    float         score;
    ht_token_type type;
} ht_hf_token;

typedef struct ht_hf_vocab ht_hf_vocab;

ht_hf_vocab* ht_hf_vocab_create(void);
void         ht_hf_vocab_free(ht_hf_vocab* vocab);

/*
 * Set a token; its text is copied. Setting an id again replaces type and score and must give the same text.
 * Errors: FORMAT id below 0 or of 2^20 and more, another text at this id.
 */
ht_status ht_hf_vocab_put(ht_hf_vocab* vocab, int64_t id, const ht_hf_token* token, ht_error* err);

/*
 * Fill ids without a token, up to the rows of the embedding, with unique "[PAD{id}]" entries, and check the sizes.
 * Errors: FORMAT the embedding has fewer rows than the tokenizer has tokens; two ids of the same text.
 */
ht_status ht_hf_vocab_finish(ht_hf_vocab* vocab, int64_t n_embd_rows, int64_t vocab_size, const ht_log* log, ht_error* err);

/* tokenizer.ggml.tokens, token_type, and scores when asked. */
ht_status ht_hf_vocab_write(ht_meta* meta, const ht_hf_vocab* vocab, bool with_scores, ht_error* err);

int64_t ht_hf_vocab_n(const ht_hf_vocab* vocab);
int64_t ht_hf_vocab_find(const ht_hf_vocab* vocab, const char* text, size_t n_bytes); /* after finish; -1 when absent */

/* "a b" with spaces inside a part written as U+0120; malloc'd, NULL when out of memory. */
char* ht_hf_join_merge(const char* a, const char* b);

/* Texts such as <|…|> that are control tokens even when a checkpoint forgets to say "special". */
bool ht_hf_looks_special(const char* text);

/* The two kinds of SentencePiece vocabulary: tokenizer.model, and tokenizer.json with byte fallback. Both fill, finish and write `vocab`. */
ht_status ht_hf_import_sentencepiece(ht_meta* meta, ht_hf_vocab* vocab, const char* model_path, const ht_json_value* added_tokens,
                                     const ht_json_value* config, const ht_hf_tokenizer_options* options, const ht_log* log, ht_error* err);
ht_status ht_hf_import_byte_fallback(ht_meta* meta, ht_hf_vocab* vocab, const ht_json_value* tokenizer, const ht_hf_tokenizer_options* options,
                                     const ht_log* log, ht_error* err);

#endif
