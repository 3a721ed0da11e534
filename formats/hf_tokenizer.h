/*
 * From Hugging Face tokenizer files to tokenizer.* metadata keys: tokenizer.json (byte-level BPE; BPE with byte fallback), tokenizer.model
 * (SentencePiece), tokenizer_config.json, added_tokens.json, special_tokens_map.json, generation_config.json (ids only), chat_template.jinja.
 */
#ifndef HT_FORMATS_HF_TOKENIZER_H
#define HT_FORMATS_HF_TOKENIZER_H

#include "formats/base/log.h"
#include "formats/meta.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_hf_tokenizer_options {
    const char* folder;        /* of the checkpoint                                                                            */
    const char* arch;          /* GGUF architecture ("llama", "qwen2", …)                                                      */
    int64_t     vocab_size;    /* config.json; -1 when absent. The token list is padded to n_embd_rows, see below              */
    int64_t     n_embd_rows;   /* rows of the embedding tensor: tokens beyond the tokenizer's become "[PAD{id}]", UNUSED;
                                  a tokenizer that needs more rows is an error (FORMAT, with both numbers)                     */
    const char* pre_tokenizer; /* force tokenizer.ggml.pre; NULL: from the pattern in tokenizer.json                           */
} ht_hf_tokenizer_options;

/*
 * Adds the keys of facts "3.3 tokenizer and split" to `meta`. Special ids come from tokenizer_config.json, then from config.json's and
 * generation_config.json's *_token_id; none is invented.
 * Errors: IO, FORMAT (broken file, ids out of range, duplicate texts), UNSUPPORTED (unknown pre-tokenizer pattern: it is shown; model kinds
 * other than BPE and SentencePiece).
 */
ht_status ht_hf_tokenizer_import(ht_meta* meta, const ht_hf_tokenizer_options* options, const ht_log* log, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
