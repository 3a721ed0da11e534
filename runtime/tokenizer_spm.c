/*
 * SentencePiece BPE (Kudo and Richardson 2018): the text is characters, and the adjacent pair whose joint token has the highest score merges
 * until none is left. What is no token in the end becomes its bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/vocab.h"

static void propose(const void* user, const ht_symbol* symbols, int32_t left, int32_t right, ht_pair_heap* heap)
{
    const ht_vocab* vocab   = user;
    const int32_t   n_bytes = symbols[left].n_bytes + symbols[right].n_bytes;
    const int32_t   merged  = ht_vocab_find(vocab, symbols[left].text, (size_t)n_bytes);
    if (merged >= 0) { ht_pair_heap_push(heap, (ht_pair){ -vocab->scores[merged], left, right, merged, n_bytes }); }
}

/* Bytes of the character that begins with `lead`; broken UTF-8 is not looked at closer, it ends as bytes anyway. */
static int32_t character_bytes(unsigned char lead) { return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

ht_status ht_spm_encode(const ht_vocab* vocab, ht_text_span text, ht_ids* out, ht_error* err)
{
    ht_status    st      = HT_STATUS_OK;
    ht_pair_heap heap    = { 0 };
    int32_t      n       = 0;
    ht_symbol*   symbols = NULL;
    HT_CHECK(text.n_bytes < INT32_MAX / 2, BOUNDS, "a text of %zu bytes without special tokens", text.n_bytes);
    symbols = malloc((text.n_bytes + 1) * sizeof *symbols);
    HT_CHECK(symbols, NOMEM, "a text of %zu bytes", text.n_bytes);
    for (size_t at = 0; at < text.n_bytes; n++) {
        const size_t left    = text.n_bytes - at;
        const size_t wanted  = (size_t)character_bytes((unsigned char)text.data[at]);
        const size_t n_bytes = wanted < left ? wanted : left;
        symbols[n] = (ht_symbol){ text.data + at, (int32_t)n_bytes, ht_vocab_find(vocab, text.data + at, n_bytes), n - 1, n + 1 };
        at += n_bytes;
    }
    if (n == 0) { goto done; }
    symbols[n - 1].next = -1;
    for (int32_t i = 0; i + 1 < n; i++) { propose(vocab, symbols, i, i + 1, &heap); }
    ht_merge_symbols(symbols, &heap, propose, vocab);
    for (int32_t i = 0; i >= 0; i = symbols[i].next) {
        if (symbols[i].id >= 0) {
            ht_ids_push(out, symbols[i].id);
            continue;
        }
        for (int32_t k = 0; k < symbols[i].n_bytes; k++) {
            const int32_t id = vocab->byte_ids[(unsigned char)symbols[i].text[k]];
            if (id >= 0) { ht_ids_push(out, id); }
        }
    }
    HT_CHECK(!heap.failed && !out->failed, NOMEM, "tokens of a text of %zu bytes", text.n_bytes);
done:
    free(symbols);
    free(heap.data);
    return st;
}
