/*
 * Byte-level BPE (Sennrich et al. 2016, as in GPT-2): patterns cut the text into pieces, each piece is bytes, and the pair of lowest rank
 * merges until none is left. The vocabulary is kept in plain bytes, so no text is ever translated to GPT-2's byte alphabet.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <inttypes.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/pre_tokenizer.h"
#include "runtime/vocab.h"

/* (left id, right id) -> rank and merged id: open addressing, at most half full. */
typedef struct merge_slot {
    int32_t left, right; /* left -1: free */
    int32_t rank, merged;
} merge_slot;

struct ht_bpe {
    const ht_pre_tokenizer* pre;
    pcre2_code*             patterns[HT_PRE_MAX_PATTERNS];
    int                     n_patterns;
    merge_slot*             merges;
    size_t                  capacity;
};

bool ht_bpe_adds_bos(const ht_bpe* bpe) { return bpe->pre->adds_bos; }

/* --- the byte alphabet of GPT-2: printable Latin-1 stands for itself, the other 68 bytes for U+0100 and up, in order --------- */

static bool is_plain(unsigned byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; }

static int byte_of_code(unsigned code)
{
    if (code < 256) { return is_plain(code) ? (int)code : -1; }
    unsigned next = 256;
    for (unsigned byte = 0; byte < 256; byte++) {
        if (!is_plain(byte) && next++ == code) { return (int)byte; }
    }
    return -1;
}

bool ht_bpe_bytes_of(ht_text_span text, char* out, size_t* out_n)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n_bytes;) {
        const unsigned char lead = (unsigned char)text.data[i];
        unsigned            code = lead;
        if (lead >= 0x80) { /* the alphabet needs two bytes at most */
            if ((lead & 0xE0) != 0xC0 || i + 1 >= text.n_bytes) { return false; }
            code = (lead & 0x1Fu) << 6 | ((unsigned char)text.data[i + 1] & 0x3Fu);
        }
        const int byte = byte_of_code(code);
        if (byte < 0) { return false; }
        out[n++] = (char)byte;
        i += lead >= 0x80 ? 2 : 1;
    }
    *out_n = n;
    return true;
}

/* --- patterns -------------------------------------------------------------------------------------------------------------------- */

/* Unicode White_Space: what \s means in the models' own tokenizers. PCRE2's \s also takes U+180E. */
#define WHITE_SPACE "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

/* The pattern with \s and \S written out; malloc'd, NULL when out of memory. */
static char* with_white_space(const char* pattern)
{
    char* out      = malloc(strlen(pattern) * (sizeof WHITE_SPACE + 4) + 1);
    char* to       = out;
    bool  in_class = false;
    for (const char* p = pattern; out && *p; p++) {
        if (p[0] == '\\' && (p[1] == 's' || (p[1] == 'S' && !in_class))) {
            const char* open = in_class ? "" : p[1] == 's' ? "[" : "[^";
            to += sprintf(to, "%s%s%s", open, WHITE_SPACE, in_class ? "" : "]");
            p++;
        } else if (p[0] == '\\') {
            *to++ = *p++;
            *to++ = *p;
        } else {
            if (*p == '[' && !in_class) { in_class = true; }
            else if (*p == ']') { in_class = false; }
            *to++ = *p;
        }
    }
    if (out) { *to = '\0'; }
    return out;
}

static ht_status compile_patterns(ht_bpe* bpe, ht_error* err)
{
    ht_status st   = HT_STATUS_OK;
    char*     text = NULL;
    for (int i = 0; i < HT_PRE_MAX_PATTERNS && bpe->pre->patterns[i]; i++) {
        int        number   = 0;
        PCRE2_SIZE position = 0;
        text = with_white_space(bpe->pre->patterns[i]);
        HT_CHECK(text, NOMEM, "pre-tokenizer pattern");
        bpe->patterns[i] = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &number, &position, NULL);
        HT_CHECK(bpe->patterns[i], UNSUPPORTED, "pre-tokenizer %s: pattern %d does not compile (PCRE2 error %d at %zu)", bpe->pre->names[0], i, number,
                 (size_t)position);
        (void)pcre2_jit_compile(bpe->patterns[i], PCRE2_JIT_COMPLETE); /* without JIT it is slower, not different */
        bpe->n_patterns++;
        free(text);
        text = NULL;
    }
done:
    free(text);
    return st;
}

/* --- merges ---------------------------------------------------------------------------------------------------------------------- */

static merge_slot* locate(const ht_bpe* bpe, int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    for (size_t i = (size_t)(h >> 20) & (bpe->capacity - 1);; i = (i + 1) & (bpe->capacity - 1)) {
        merge_slot* s = &bpe->merges[i];
        if (s->left < 0 || (s->left == left && s->right == right)) { return s; }
    }
}

/* The id of a part written in the byte alphabet, or -1. `scratch` holds at least part.n_bytes. */
static int32_t part_id(const ht_vocab* vocab, ht_text_span part, char* scratch)
{
    size_t n = 0;
    return ht_bpe_bytes_of(part, scratch, &n) ? ht_vocab_find(vocab, scratch, n) : -1;
}

static ht_status add_merge(ht_bpe* bpe, const ht_vocab* vocab, const ht_string* text, int32_t rank, ht_error* err)
{
    ht_status   st      = HT_STATUS_OK;
    char*       scratch = NULL;
    /* a part never begins with a space, but the first byte may be one: look for the separator behind it */
    const char* space = text->n_bytes > 1 ? memchr(text->data + 1, ' ', text->n_bytes - 1) : NULL;
    HT_CHECK(space, FORMAT, "tokenizer.ggml.merges[%" PRId32 "] \"%.60s\" is not of the form \"a b\"", rank, text->data);
    scratch = malloc(2 * text->n_bytes + 1);
    HT_CHECK(scratch, NOMEM, "merges");
    const size_t  n_left  = (size_t)(space - text->data);
    ht_text_span  left    = { text->data, n_left }, right = { space + 1, text->n_bytes - n_left - 1 };
    size_t        n_a = 0, n_b = 0;
    const int32_t left_id = part_id(vocab, left, scratch), right_id = part_id(vocab, right, scratch);
    HT_CHECK(left_id >= 0 && right_id >= 0 && ht_bpe_bytes_of(left, scratch, &n_a) && ht_bpe_bytes_of(right, scratch + n_a, &n_b), FORMAT,
             "tokenizer.ggml.merges[%" PRId32 "] \"%.60s\" joins something that is no token", rank, text->data);
    const int32_t merged = ht_vocab_find(vocab, scratch, n_a + n_b);
    HT_CHECK(merged >= 0, FORMAT, "tokenizer.ggml.merges[%" PRId32 "] \"%.60s\" makes something that is no token", rank, text->data);
    merge_slot* slot = locate(bpe, left_id, right_id);
    if (slot->left < 0) { *slot = (merge_slot){ left_id, right_id, rank, merged }; } /* of twins the first counts */
done:
    free(scratch);
    return st;
}

ht_status ht_bpe_create(ht_bpe** out, const ht_meta* meta, const ht_vocab* vocab, ht_error* err)
{
    ht_status         st     = HT_STATUS_OK;
    const char*       name   = "default";
    const ht_meta_kv* merges = NULL;
    ht_bpe*           bpe    = calloc(1, sizeof *bpe);
    HT_CHECK(bpe, NOMEM, "tokenizer");
    HT_TRY(ht_meta_get_string(meta, "tokenizer.ggml.pre", false, &name, err));
    HT_TRY(ht_meta_get_array(meta, "tokenizer.ggml.merges", true, HT_META_TYPE_STRING, &merges, err));
    bpe->pre = ht_pre_tokenizer_find(name);
    HT_CHECK(bpe->pre, UNSUPPORTED, "tokenizer.ggml.pre: unknown pre-tokenizer \"%s\"", name);
    HT_CHECK(merges->n_values < INT32_MAX / 4, BOUNDS, "%" PRIu64 " merges", merges->n_values);
    HT_TRY(compile_patterns(bpe, err));
    bpe->capacity = 64;
    while (bpe->capacity < 2 * merges->n_values + 2) { bpe->capacity *= 2; }
    bpe->merges = malloc(bpe->capacity * sizeof *bpe->merges);
    HT_CHECK(bpe->merges, NOMEM, "%" PRIu64 " merges", merges->n_values);
    for (size_t i = 0; i < bpe->capacity; i++) { bpe->merges[i].left = -1; }
    for (uint64_t i = 0; i < merges->n_values; i++) { HT_TRY(add_merge(bpe, vocab, &merges->strings[i], (int32_t)i, err)); }
    *out = bpe;
    bpe  = NULL;
done:
    ht_bpe_free(bpe);
    return st;
}

void ht_bpe_free(ht_bpe* bpe)
{
    if (!bpe) { return; }
    for (int i = 0; i < bpe->n_patterns; i++) { pcre2_code_free(bpe->patterns[i]); }
    free(bpe->merges);
    free(bpe);
}

/* --- encoding ------------------------------------------------------------------------------------------------------------------------ */

/* Pieces repeat: a direct-mapped cache of what they became. Entries point into the text being encoded and into the ids put out so far. */
enum { CACHE_SLOTS = 1 << 14, CACHE_MAX_BYTES = 48, CACHE_MIN_TEXT = 4096 }; /* a short text does not pay for clearing 512 KiB */

typedef struct cached_piece {
    const char* text; /* NULL: free */
    uint32_t    n_bytes, n_ids;
    int64_t     first_id;
} cached_piece;

typedef struct encoder {
    const ht_bpe*     bpe;
    const ht_vocab*   vocab;
    pcre2_match_data* match;
    ht_ids*           out;
    ht_pair_heap      heap;
    ht_symbol*        symbols;
    size_t            n_symbols;
    cached_piece*     cache; /* NULL: none */
    bool              failed;
} encoder;

static void propose(const void* user, const ht_symbol* symbols, int32_t left, int32_t right, ht_pair_heap* heap)
{
    const ht_bpe* bpe = user;
    if (symbols[left].id < 0 || symbols[right].id < 0) { return; }
    const merge_slot* slot = locate(bpe, symbols[left].id, symbols[right].id);
    if (slot->left < 0) { return; }
    ht_pair_heap_push(heap, (ht_pair){ (float)slot->rank, left, right, slot->merged, symbols[left].n_bytes + symbols[right].n_bytes });
}

static void merge_piece(encoder* e, ht_text_span piece)
{
    const int32_t n = (int32_t)piece.n_bytes;
    if (piece.n_bytes > e->n_symbols) {
        ht_symbol* grown = realloc(e->symbols, piece.n_bytes * sizeof *grown);
        if (!grown || piece.n_bytes > INT32_MAX / 2) {
            e->failed = true;
            e->symbols = grown ? grown : e->symbols;
            return;
        }
        e->symbols   = grown;
        e->n_symbols = piece.n_bytes;
    }
    for (int32_t i = 0; i < n; i++) {
        e->symbols[i] = (ht_symbol){ piece.data + i, 1, e->vocab->byte_ids[(unsigned char)piece.data[i]], i - 1, i + 1 < n ? i + 1 : -1 };
    }
    e->heap.n = 0;
    for (int32_t i = 0; i + 1 < n; i++) { propose(e->bpe, e->symbols, i, i + 1, &e->heap); }
    ht_merge_symbols(e->symbols, &e->heap, propose, e->bpe);
    for (int32_t i = 0; i >= 0 && n > 0; i = e->symbols[i].next) {
        if (e->symbols[i].id >= 0) { ht_ids_push(e->out, e->symbols[i].id); } /* a byte that has no token is dropped, as in llama.cpp */
    }
}

static void encode_uncached(encoder* e, ht_text_span piece)
{
    const int32_t whole = e->bpe->pre->ignore_merges ? ht_vocab_find(e->vocab, piece.data, piece.n_bytes) : -1;
    if (whole >= 0) { ht_ids_push(e->out, whole); }
    else { merge_piece(e, piece); }
}

static void encode_piece(encoder* e, ht_text_span piece)
{
    if (!e->cache || piece.n_bytes > CACHE_MAX_BYTES) {
        encode_uncached(e, piece);
        return;
    }
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < piece.n_bytes; i++) { h = (h ^ (unsigned char)piece.data[i]) * 0x100000001B3u; }
    cached_piece* slot = &e->cache[(h ^ h >> 32) & (CACHE_SLOTS - 1)];
    if (slot->text && slot->n_bytes == piece.n_bytes && memcmp(slot->text, piece.data, piece.n_bytes) == 0) {
        for (uint32_t i = 0; i < slot->n_ids; i++) { ht_ids_push(e->out, e->out->data[slot->first_id + i]); }
        return;
    }
    const int64_t first = e->out->n;
    encode_uncached(e, piece);
    if (!e->out->failed) { *slot = (cached_piece){ piece.data, (uint32_t)piece.n_bytes, (uint32_t)(e->out->n - first), first }; }
}

/* Cut by pattern `level` and hand the parts, gaps included, to the next; past the last pattern they are pieces. */
static void split(encoder* e, ht_text_span text, int level)
{
    if (text.n_bytes == 0) { return; }
    if (level == e->bpe->n_patterns) {
        encode_piece(e, text);
        return;
    }
    size_t done = 0, at = 0;
    while (at < text.n_bytes) {
        const int code = pcre2_match(e->bpe->patterns[level], (PCRE2_SPTR)text.data, text.n_bytes, at, PCRE2_NO_UTF_CHECK, e->match, NULL);
        if (code < 0 && code != PCRE2_ERROR_NOMATCH) { e->failed = true; }
        if (code < 0) { break; }
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(e->match);
        const size_t      start = range[0], end = range[1];
        if (end == start) { /* an empty match cuts nothing: step over one character */
            at++;
            while (at < text.n_bytes && ((unsigned char)text.data[at] & 0xC0) == 0x80) { at++; }
            continue;
        }
        split(e, (ht_text_span){ text.data + done, start - done }, level + 1);
        split(e, (ht_text_span){ text.data + start, end - start }, level + 1);
        done = at = end;
    }
    split(e, (ht_text_span){ text.data + done, text.n_bytes - done }, level + 1);
}

ht_status ht_bpe_encode(const ht_bpe* bpe, const ht_vocab* vocab, ht_text_span text, ht_ids* out, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    encoder   e  = { .bpe = bpe, .vocab = vocab, .out = out };
    e.match      = pcre2_match_data_create(8, NULL);
    e.cache      = text.n_bytes >= CACHE_MIN_TEXT ? calloc(CACHE_SLOTS, sizeof *e.cache) : NULL;
    HT_CHECK(e.match, NOMEM, "tokenizer");
    split(&e, text, 0);
    HT_CHECK(!e.failed && !e.heap.failed && !out->failed, NOMEM, "tokens of a text of %zu bytes", text.n_bytes);
done:
    pcre2_match_data_free(e.match);
    free(e.cache);
    free(e.symbols);
    free(e.heap.data);
    return st;
}
