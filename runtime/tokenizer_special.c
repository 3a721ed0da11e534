/*
 * Where special tokens stand in a text. A longer token takes its bytes before a shorter one, as in llama.cpp; of equal lengths the leftmost does.
 * The text is looked at where some token may begin, once for each length that tokens have: not once for each of a vocabulary's 6000 tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/vocab.h"

typedef struct length_group {
    size_t n_bytes;
    bool   begins[256]; /* the first bytes of tokens of this length */
} length_group;

struct ht_specials {
    ht_name_map*  by_text;
    length_group* groups; /* longest first */
    size_t        n_groups;
    bool          begins[256];
};

static bool is_special(const ht_vocab* vocab, int32_t id)
{
    const int type = vocab->types[id];
    return (type == HT_TOKEN_TYPE_CONTROL || type == HT_TOKEN_TYPE_USER_DEFINED || type == HT_TOKEN_TYPE_UNKNOWN) && vocab->tokens[id].n_bytes > 0;
}

static int longest_first(const void* a, const void* b)
{
    const size_t x = *(const size_t*)a, y = *(const size_t*)b;
    return x > y ? -1 : x < y;
}

/* The distinct lengths of special tokens, longest first; `lengths` has room for all of them. */
static size_t collect_lengths(const ht_vocab* vocab, size_t* lengths)
{
    size_t n = 0, n_distinct = 0;
    for (int32_t i = 0; i < vocab->n_tokens; i++) {
        if (is_special(vocab, i)) { lengths[n++] = vocab->tokens[i].n_bytes; }
    }
    qsort(lengths, n, sizeof *lengths, longest_first);
    for (size_t i = 0; i < n; i++) {
        if (n_distinct == 0 || lengths[n_distinct - 1] != lengths[i]) { lengths[n_distinct++] = lengths[i]; }
    }
    return n_distinct;
}

ht_status ht_specials_create(ht_specials** out, const ht_vocab* vocab, ht_error* err)
{
    ht_status    st      = HT_STATUS_OK;
    size_t*      lengths = malloc((size_t)vocab->n_tokens * sizeof *lengths);
    ht_specials* s       = calloc(1, sizeof *s);
    HT_CHECK(lengths && s, NOMEM, "special tokens");
    s->n_groups = collect_lengths(vocab, lengths);
    s->groups   = calloc(s->n_groups + 1, sizeof *s->groups);
    s->by_text  = ht_name_map_create();
    HT_CHECK(s->groups && s->by_text, NOMEM, "special tokens");
    for (size_t g = 0; g < s->n_groups; g++) { s->groups[g].n_bytes = lengths[g]; }
    for (int32_t i = 0; i < vocab->n_tokens; i++) {
        if (!is_special(vocab, i)) { continue; }
        const ht_text_span  text  = vocab->tokens[i];
        const unsigned char first = (unsigned char)text.data[0];
        const size_t*       found = bsearch(&text.n_bytes, lengths, s->n_groups, sizeof *lengths, longest_first);
        s->begins[first] = s->groups[found - lengths].begins[first] = true;
        HT_CHECK(ht_name_map_add(s->by_text, text.data, text.n_bytes, i) >= 0, NOMEM, "special tokens");
    }
    *out = s;
    s    = NULL;
done:
    ht_specials_free(s);
    free(lengths);
    return st;
}

void ht_specials_free(ht_specials* s)
{
    if (!s) { return; }
    ht_name_map_free(s->by_text);
    free(s->groups);
    free(s);
}

/* Where some token may begin; `places` has room for n_bytes of them. */
static size_t collect_places(const ht_specials* s, ht_text_span text, size_t* places)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n_bytes; i++) {
        places[n] = i;
        n += s->begins[(unsigned char)text.data[i]];
    }
    return n;
}

/*
 * owner[i]: 0 free, -1 - id where that token begins, 1 further inside. A claim is never shorter than the token looked for, so a token that
 * overlaps one has its first or its last byte inside.
 */
static void claim(const ht_specials* s, const ht_vocab* vocab, ht_text_span text, bool parse_special, const size_t* places, size_t n_places, int32_t* owner)
{
    for (size_t g = 0; g < s->n_groups; g++) {
        const size_t n = s->groups[g].n_bytes;
        for (size_t k = 0; k < n_places; k++) {
            const size_t at = places[k];
            if (!s->groups[g].begins[(unsigned char)text.data[at]] || n > text.n_bytes - at || owner[at] || owner[at + n - 1]) { continue; }
            const int32_t id = (int32_t)ht_name_map_find(s->by_text, text.data + at, n);
            if (id < 0 || (!parse_special && vocab->types[id] != HT_TOKEN_TYPE_USER_DEFINED)) { continue; }
            for (size_t i = at + 1; i < at + n; i++) { owner[i] = 1; }
            owner[at] = -1 - id;
        }
    }
}

/* The length of the fragment that begins at `at`. */
static size_t fragment_bytes(const ht_vocab* vocab, const int32_t* owner, size_t at, size_t n_bytes)
{
    if (owner[at] < 0) { return vocab->tokens[-1 - owner[at]].n_bytes; }
    size_t end = at;
    while (end < n_bytes && owner[end] == 0) { end++; }
    return end - at;
}

ht_status ht_specials_cut(const ht_specials* s, const ht_vocab* vocab, ht_text_span text, bool parse_special, ht_fragment** out, int64_t* out_n,
                          ht_error* err)
{
    ht_status    st        = HT_STATUS_OK;
    size_t*      places    = malloc((text.n_bytes + 1) * sizeof *places);
    int32_t*     owner     = calloc(text.n_bytes + 1, sizeof *owner);
    ht_fragment* fragments = NULL;
    size_t       n         = 0;
    HT_CHECK(places && owner, NOMEM, "a text of %zu bytes", text.n_bytes);
    claim(s, vocab, text, parse_special, places, collect_places(s, text, places), owner);
    for (size_t at = 0; at < text.n_bytes; at += fragment_bytes(vocab, owner, at, text.n_bytes)) { n++; }
    fragments = malloc((n + 1) * sizeof *fragments);
    HT_CHECK(fragments, NOMEM, "a text of %zu bytes", text.n_bytes);
    n = 0;
    for (size_t at = 0, n_bytes; at < text.n_bytes; at += n_bytes) {
        n_bytes        = fragment_bytes(vocab, owner, at, text.n_bytes);
        fragments[n++] = (ht_fragment){ { text.data + at, n_bytes }, owner[at] < 0 ? -1 - owner[at] : -1 };
    }
    *out   = fragments;
    *out_n = (int64_t)n;
done:
    free(places);
    free(owner);
    return st;
}
