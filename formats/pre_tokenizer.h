/*
 * Pre-tokenizers: the patterns that cut text into pieces before byte-level BPE merges, and the names that tokenizer.ggml.pre gives them.
 * The importer goes from a tokenizer.json's patterns to a name, the runtime from a name to patterns: both through this one table.
 * Source: llama.cpp src/llama-vocab.cpp (names, flags), the tokenizer.json files of the models (patterns).
 */
#ifndef HT_FORMATS_PRE_TOKENIZER_H
#define HT_FORMATS_PRE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { HT_PRE_MAX_PATTERNS = 6, HT_PRE_MAX_NAMES = 16 };

/*
 * Each pattern is applied to the pieces that the one before left; what it does not match stays a piece of its own.
 * PCRE2 syntax, UTF and UCP.
 */
typedef struct ht_pre_tokenizer {
    const char* names[HT_PRE_MAX_NAMES];       /* the first is the one written; NULL ends                     */
    const char* patterns[HT_PRE_MAX_PATTERNS]; /* NULL ends                                                   */
    bool        ignore_merges;                 /* a whole piece that is a token is taken as it is             */
    bool        adds_bos;                      /* when the file does not say                                  */
} ht_pre_tokenizer;

/* By name; NULL when unknown. "default" is the row for files without a name. */
const ht_pre_tokenizer* ht_pre_tokenizer_find(const char* name);

/*
 * The row with exactly these patterns, after writing `(?i:'s|'t|…)` as the table does; among several one that treats merges as asked.
 * NULL when there is none, and when there are more than HT_PRE_MAX_PATTERNS.
 */
const ht_pre_tokenizer* ht_pre_tokenizer_match(const char* const* patterns, size_t n_patterns, bool ignore_merges);

/* The pattern of GPT-2, which ByteLevel with use_regex stands for. */
extern const char ht_pre_gpt2_pattern[];

#ifdef __cplusplus
}
#endif
#endif
