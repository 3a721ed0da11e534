/*
 * Text to token ids and back, from the tokenizer.* keys of a model's metadata: byte-level BPE ("gpt2") with the pre-tokenizer patterns of
 * tokenizer.ggml.pre run by PCRE2, and SentencePiece ("llama"). Equal to stock llama.cpp id for id.
 * An ht_tokenizer is read-only after creation and may be shared by threads.
 */
#ifndef HT_RUNTIME_TOKENIZER_H
#define HT_RUNTIME_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/meta.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_tokenizer ht_tokenizer;

/* Errors: FORMAT (missing or ill-typed keys, merges of unknown tokens), UNSUPPORTED (tokenizer.ggml.model or .pre unknown: it is named). */
ht_status ht_tokenizer_create(ht_tokenizer** out, const ht_meta* meta, ht_error* err);
void      ht_tokenizer_free(ht_tokenizer* tokenizer);

/*
 * add_special     put BOS in front / EOS behind where the model's keys say so
 * parse_special   texts of CONTROL and USER_DEFINED tokens in `text` become those tokens (else only USER_DEFINED ones do)
 * *out_ids is malloc'd (never NULL on success), owned by the caller. Invalid UTF-8 is encoded as stock llama.cpp does.
 */
ht_status ht_tokenizer_encode(const ht_tokenizer* tokenizer, const char* text, size_t n_bytes, bool add_special, bool parse_special,
                              int32_t** out_ids, int64_t* out_n, ht_error* err);

/*
 * The bytes of one token, as they appear in running text: "Ġthe" -> " the". Control tokens give their text when `show_special`, else nothing.
 * Returns the length; writes at most n_buf bytes, not terminated. Ids out of range give 0.
 */
size_t ht_tokenizer_decode(const ht_tokenizer* tokenizer, int32_t id, bool show_special, char* buf, size_t n_buf);

int32_t ht_tokenizer_n_tokens(const ht_tokenizer* tokenizer);
int32_t ht_tokenizer_bos(const ht_tokenizer* tokenizer);      /* -1 when the model has none                              */
int32_t ht_tokenizer_eos(const ht_tokenizer* tokenizer);
bool    ht_tokenizer_adds_bos(const ht_tokenizer* tokenizer);
bool    ht_tokenizer_is_end(const ht_tokenizer* tokenizer, int32_t id); /* EOS, EOT, EOM: generation stops there     */

#ifdef __cplusplus
}
#endif
#endif
