/*
 * The vocabulary inside a tokenizer: shared by tokenizer.c and tokenizer_*.c only.
 */
#ifndef HT_RUNTIME_VOCAB_H
#define HT_RUNTIME_VOCAB_H

#include "formats/base/name_map.h"
#include "formats/hf_vocab.h"
#include "runtime/tokenizer.h"

/* A growing list of ids. The first failed allocation sticks and is looked at once. */
typedef struct ht_ids {
    int32_t* data;
    int64_t  n, capacity;
    bool     failed;
} ht_ids;

void ht_ids_push(ht_ids* ids, int32_t id);

/* A span of text that lies in someone else's memory. */
typedef struct ht_text_span {
    const char* data;
    size_t      n_bytes;
} ht_text_span;

typedef struct ht_vocab {
    int32_t       n_tokens;
    char*         text;        /* bytes of all tokens, as they appear in running text (BPE: decoded from the byte alphabet)  */
    ht_text_span* tokens;      /* n_tokens spans into `text`                                                                 */
    uint8_t*      types;       /* ht_token_type                                                                              */
    float*        scores;      /* SPM only                                                                                   */
    ht_name_map*  by_text;     /* tokens that text can become: neither control nor unused                                    */
    int32_t       byte_ids[256]; /* the token of a single byte; -1: none                                                     */
} ht_vocab;

static inline int32_t ht_vocab_find(const ht_vocab* vocab, const char* text, size_t n_bytes)
{
    return (int32_t)ht_name_map_find(vocab->by_text, text, n_bytes);
}

/* --- special tokens ---------------------------------------------------------------------------------------------------------- */

typedef struct ht_specials ht_specials;

/* A stretch of text, or a special token found in it (id >= 0). */
typedef struct ht_fragment {
    ht_text_span text;
    int32_t      id;
} ht_fragment;

ht_status ht_specials_create(ht_specials** out, const ht_vocab* vocab, ht_error* err);
void      ht_specials_free(ht_specials* specials);

/* Cut `text` at CONTROL, UNKNOWN and USER_DEFINED tokens, or (not parse_special) at the last alone. *out is malloc'd. Thread-safe. */
ht_status ht_specials_cut(const ht_specials* specials, const ht_vocab* vocab, ht_text_span text, bool parse_special, ht_fragment** out, int64_t* out_n,
                          ht_error* err);

/* --- byte-level BPE ---------------------------------------------------------------------------------------------------------- */

typedef struct ht_bpe ht_bpe;

/* Patterns and merges from `meta`. Errors: FORMAT, UNSUPPORTED, NOMEM. */
ht_status ht_bpe_create(ht_bpe** out, const ht_meta* meta, const ht_vocab* vocab, ht_error* err);
void      ht_bpe_free(ht_bpe* bpe);
bool      ht_bpe_adds_bos(const ht_bpe* bpe); /* the pre-tokenizer's habit, for files that do not say */

/* Encode one stretch of text without special tokens. Thread-safe. */
ht_status ht_bpe_encode(const ht_bpe* bpe, const ht_vocab* vocab, ht_text_span text, ht_ids* out, ht_error* err);

/* Byte-level texts, as vocabularies write them ("Ġthe"), to the bytes they stand for (" the"). False: `text` is not of that alphabet. */
bool ht_bpe_bytes_of(ht_text_span text, char* out, size_t* out_n);

/* --- SentencePiece ------------------------------------------------------------------------------------------------------------ */

/* Encode one stretch of text in which spaces are already U+2581. */
ht_status ht_spm_encode(const ht_vocab* vocab, ht_text_span text, ht_ids* out, ht_error* err);

/* --- merging ------------------------------------------------------------------------------------------------------------------ */

/*
 * A heap of adjacent pairs that may be merged: the best comes first, of equals the leftmost. Both kinds of tokenizer drain one.
 *   key    smaller is better (BPE: rank; SPM: minus the score)
 */
typedef struct ht_pair {
    float   key;
    int32_t left, right; /* symbols                                     */
    int32_t merged;      /* the token that they make                    */
    int32_t n_bytes;     /* of both together, to recognise stale pairs  */
} ht_pair;

typedef struct ht_pair_heap {
    ht_pair* data;
    int64_t  n, capacity;
    bool     failed;
} ht_pair_heap;

void ht_pair_heap_push(ht_pair_heap* heap, ht_pair pair);
bool ht_pair_heap_pop(ht_pair_heap* heap, ht_pair* out); /* false: empty */

/* A piece of text on its way to a token; a doubly linked list in an array. */
typedef struct ht_symbol {
    const char* text;
    int32_t     n_bytes; /* 0: merged into the one before */
    int32_t     id;      /* -1: no token                  */
    int32_t     prev, next;
} ht_symbol;

/* Merge the best pairs until none is left. `propose` pushes the pair (left, right) when it can be merged; user is passed on. */
typedef void (*ht_propose_fn)(const void* user, const ht_symbol* symbols, int32_t left, int32_t right, ht_pair_heap* heap);
void ht_merge_symbols(ht_symbol* symbols, ht_pair_heap* heap, ht_propose_fn propose, const void* user);

#endif
