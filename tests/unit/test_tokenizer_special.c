/* Special tokens in text: the longer first, the leftmost of equals, and the same as the plain definition on random texts. */
#include "tests/ht_test.h"

#include "runtime/vocab.h"

#define SPAN(text) { text, sizeof text - 1 }

static ht_text_span texts[] = { SPAN("<a>"), SPAN("<a><b>"), SPAN("b><b"), SPAN("\n"), SPAN("\n\n\n"), SPAN("x"), SPAN("<u>"), SPAN("") };
static uint8_t      types[] = { HT_TOKEN_TYPE_CONTROL, HT_TOKEN_TYPE_CONTROL, HT_TOKEN_TYPE_CONTROL,      HT_TOKEN_TYPE_USER_DEFINED,
                                HT_TOKEN_TYPE_USER_DEFINED, HT_TOKEN_TYPE_NORMAL, HT_TOKEN_TYPE_UNKNOWN, HT_TOKEN_TYPE_CONTROL };
enum { N_TOKENS = sizeof types };

static const ht_vocab vocab = { .n_tokens = N_TOKENS, .tokens = texts, .types = types };

/* The fragments as text: "[id]" for a token, the plain text otherwise, "|" between. */
static void cut(const ht_specials* s, const char* text, size_t n_bytes, bool parse, char* out)
{
    ht_fragment* list = NULL;
    int64_t      n    = 0;
    assert_int_equal(ht_specials_cut(s, &vocab, (ht_text_span){ text, n_bytes }, parse, &list, &n, NULL), HT_STATUS_OK);
    out[0] = '\0';
    for (int64_t i = 0; i < n; i++) {
        if (list[i].id >= 0) { sprintf(out + strlen(out), "|[%d]", list[i].id); }
        else { sprintf(out + strlen(out), "|%.*s", (int)list[i].text.n_bytes, list[i].text.data); }
    }
    free(list);
}

static ht_specials* create(void)
{
    ht_specials* s = NULL;
    assert_int_equal(ht_specials_create(&s, &vocab, NULL), HT_STATUS_OK);
    return s;
}

static void test_order_of_tokens(void** state)
{
    (void)state;
    static const struct { const char* text; bool parse; const char* fragments; } cases[] = {
        { "", true, "" },
        { "x", true, "|x" },
        { "<a>", true, "|[0]" },
        { "x<a>y", true, "|x|[0]|y" },
        { "<a><b>", true, "|[1]" },           /* the longest, though a shorter one begins there too    */
        { "<a><a><b>", true, "|[0]|[1]" },    /* … and though a shorter one begins before              */
        { "b><b>", true, "|[2]|>" },
        { "<a><b><b", true, "|[1]|<b" },      /* "b><b" would overlap the longer one                   */
        { "\n\n\n\n", true, "|[4]|[3]" },
        { "<a>\n<u>", false, "|<a>|[3]|<u>" }, /* only user-defined tokens when special ones are text   */
        { "<a>\n<u>", true, "|[0]|[3]|[6]" },
        { "<a", true, "|<a" },
    };
    ht_specials* s = create();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char found[256];
        cut(s, cases[i].text, strlen(cases[i].text), cases[i].parse, found);
        assert_string_equal(found, cases[i].fragments);
    }
    ht_specials_free(s);
}

/* The definition: by length, then from the left, every occurrence in bytes that are still free. */
static void cut_plainly(const char* text, size_t n_bytes, char* out)
{
    int owner[64] = { 0 }; /* 0 free, 1 + id at the beginning of a token, -1 inside */
    for (size_t n = 8; n > 0; n--) {
        for (size_t at = 0; at + n <= n_bytes; at++) {
            for (int id = 0; id < N_TOKENS; id++) {
                bool fits = types[id] != HT_TOKEN_TYPE_NORMAL && texts[id].n_bytes == n && memcmp(texts[id].data, text + at, n) == 0;
                for (size_t i = at; i < at + n; i++) { fits = fits && owner[i] == 0; }
                for (size_t i = at; fits && i < at + n; i++) { owner[i] = i == at ? 1 + id : -1; }
            }
        }
    }
    char* to = out;
    for (size_t at = 0; at < n_bytes; at++) {
        if (owner[at] > 0) { to += sprintf(to, "|[%d]", owner[at] - 1); }
        else if (owner[at] == 0) { to += sprintf(to, at == 0 || owner[at - 1] != 0 ? "|%c" : "%c", text[at]); }
    }
    *to = '\0';
}

static void test_random_texts(void** state)
{
    (void)state;
    ht_specials* s    = create();
    uint64_t     seed = 3;
    for (int round = 0; round < 20000; round++) {
        char         text[33], found[512], expected[512];
        const size_t n = (size_t)(ht_test_random(&seed) % 32);
        for (size_t i = 0; i < n; i++) { text[i] = "<>ab\nu"[ht_test_random(&seed) % 6]; }
        cut(s, text, n, true, found);
        cut_plainly(text, n, expected);
        assert_string_equal(found, expected);
    }
    ht_specials_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_order_of_tokens), cmocka_unit_test(test_random_texts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
