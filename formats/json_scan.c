#include "formats/json_scan.h"

#include <ctype.h>
#include <string.h>

enum { MAX_DEPTH = 64 }; /* of a skipped value; a safetensors header has 3 levels */

char ht_json_scan_peek(ht_json_scan* scan)
{
    while (scan->pos < scan->n_bytes && memchr(" \t\r\n", scan->text[scan->pos], 4)) { scan->pos++; }
    return scan->pos < scan->n_bytes ? scan->text[scan->pos] : '\0';
}

bool ht_json_scan_accept(ht_json_scan* scan, char c)
{
    if (ht_json_scan_peek(scan) != c || scan->pos == scan->n_bytes) { return false; }
    scan->pos++;
    return true;
}

ht_status ht_json_scan_fail(const ht_json_scan* scan, const char* expected, ht_error* err)
{
    const uint64_t at = scan->base_bytes + scan->pos;
    if (scan->pos >= scan->n_bytes) { return ht_fail_at(err, HT_STATUS_FORMAT, at, "not valid JSON: %s expected, the text ends", expected); }
    const unsigned char c = (unsigned char)scan->text[scan->pos];
    if (isprint(c)) { return ht_fail_at(err, HT_STATUS_FORMAT, at, "not valid JSON: %s expected, found '%c'", expected, c); }
    return ht_fail_at(err, HT_STATUS_FORMAT, at, "not valid JSON: %s expected, found byte 0x%02x", expected, c);
}

ht_status ht_json_scan_expect(ht_json_scan* scan, char c, ht_error* err)
{
    const char expected[] = { '\'', c, '\'', '\0' };
    return ht_json_scan_accept(scan, c) ? HT_STATUS_OK : ht_json_scan_fail(scan, expected, err);
}

/* Four hexadecimal digits at `at`; -1 when they are not. */
static int32_t hex4(const ht_json_scan* scan, size_t at)
{
    int32_t code = 0;
    if (scan->n_bytes - at < 4) { return -1; }
    for (size_t i = at; i < at + 4; i++) {
        const char c = scan->text[i];
        if (!isxdigit((unsigned char)c)) { return -1; }
        code = code * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return code;
}

static char* put_utf8(char* to, int32_t code)
{
    if (code < 0x80) { *to++ = (char)code; }
    else if (code < 0x800) { *to++ = (char)(0xC0 | code >> 6), *to++ = (char)(0x80 | (code & 0x3F)); }
    else if (code < 0x10000) {
        *to++ = (char)(0xE0 | code >> 12), *to++ = (char)(0x80 | (code >> 6 & 0x3F)), *to++ = (char)(0x80 | (code & 0x3F));
    } else {
        *to++ = (char)(0xF0 | code >> 18), *to++ = (char)(0x80 | (code >> 12 & 0x3F)), *to++ = (char)(0x80 | (code >> 6 & 0x3F)),
        *to++ = (char)(0x80 | (code & 0x3F));
    }
    return to;
}

/* The escape whose backslash was just passed. A code needs at least as many bytes of text as of UTF-8, so decoding in place is safe. */
static ht_status read_escape(ht_json_scan* scan, char** to, ht_error* err)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    const char  c     = scan->pos < scan->n_bytes ? scan->text[scan->pos] : '\0';
    const char* found = c ? strchr(from, c) : NULL;
    if (found) {
        *(*to)++ = into[found - from];
        scan->pos++;
        return HT_STATUS_OK;
    }
    if (c != 'u') { return ht_json_scan_fail(scan, "an escape", err); }
    int32_t code = hex4(scan, scan->pos + 1);
    scan->pos += 1;
    if (code <= 0) { return ht_json_scan_fail(scan, "four hexadecimal digits, not all 0,", err); }
    scan->pos += 4;
    if (code >= 0xD800 && code < 0xE000) {
        const bool    escaped = scan->n_bytes - scan->pos >= 6 && scan->text[scan->pos] == '\\' && scan->text[scan->pos + 1] == 'u';
        const int32_t low     = escaped ? hex4(scan, scan->pos + 2) : -1;
        if (code >= 0xDC00 || low < 0xDC00 || low >= 0xE000) { return ht_json_scan_fail(scan, "a surrogate pair", err); }
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        scan->pos += 6;
    }
    *to = put_utf8(*to, code);
    return HT_STATUS_OK;
}

ht_status ht_json_scan_string(ht_json_scan* scan, const char** out, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    if (!ht_json_scan_accept(scan, '"')) { return ht_json_scan_fail(scan, "a string", err); }
    char* const start = scan->text + scan->pos;
    char*       to    = start;
    for (;;) {
        if (scan->pos >= scan->n_bytes || (unsigned char)scan->text[scan->pos] < 0x20) { return ht_json_scan_fail(scan, "the end of a string", err); }
        const char c = scan->text[scan->pos++];
        if (c == '"') { break; }
        if (c == '\\') { HT_TRY(read_escape(scan, &to, err)); }
        else { *to++ = c; }
    }
    *to  = '\0';
    *out = start;
done:
    return st;
}

ht_status ht_json_scan_u64(ht_json_scan* scan, uint64_t* out, ht_error* err)
{
    uint64_t     value = 0;
    const char   first = ht_json_scan_peek(scan);
    const size_t start = scan->pos;
    while (scan->pos < scan->n_bytes && isdigit((unsigned char)scan->text[scan->pos])) {
        const unsigned digit = (unsigned)(scan->text[scan->pos] - '0');
        if (value > (UINT64_MAX - digit) / 10) { return ht_json_scan_fail(scan, "a number below 2^64", err); }
        value = value * 10 + digit;
        scan->pos++;
    }
    if (scan->pos == start || (first == '0' && scan->pos - start > 1)) { return ht_json_scan_fail(scan, "a non-negative integer", err); }
    if (scan->pos < scan->n_bytes && memchr(".eE", scan->text[scan->pos], 3)) {
        return ht_json_scan_fail(scan, "an integer without point or exponent", err);
    }
    *out = value;
    return HT_STATUS_OK;
}

/* A number or a word (true, false, null): enough of a check for values that are not used. */
static ht_status skip_scalar(ht_json_scan* scan, ht_error* err)
{
    static const char* const words[] = { "true", "false", "null" };
    for (size_t i = 0; i < 3; i++) {
        const size_t n = strlen(words[i]);
        if (scan->n_bytes - scan->pos >= n && memcmp(scan->text + scan->pos, words[i], n) == 0) {
            scan->pos += n;
            return HT_STATUS_OK;
        }
    }
    const size_t start = scan->pos;
    while (scan->pos < scan->n_bytes && (isdigit((unsigned char)scan->text[scan->pos]) || memchr("+-.eE", scan->text[scan->pos], 5))) { scan->pos++; }
    return scan->pos > start ? HT_STATUS_OK : ht_json_scan_fail(scan, "a value", err);
}

static ht_status skip_value(ht_json_scan* scan, int depth, ht_error* err)
{
    ht_status   st    = HT_STATUS_OK;
    const char* text  = NULL;
    const char  first = ht_json_scan_peek(scan);
    if (depth > MAX_DEPTH) { return ht_json_scan_fail(scan, "less nesting", err); }
    if (first == '"') { return ht_json_scan_string(scan, &text, err); }
    if (first != '{' && first != '[') { return skip_scalar(scan, err); }
    const char last = first == '{' ? '}' : ']';
    scan->pos++;
    if (ht_json_scan_accept(scan, last)) { return HT_STATUS_OK; }
    do {
        if (first == '{') {
            HT_TRY(ht_json_scan_string(scan, &text, err));
            HT_TRY(ht_json_scan_expect(scan, ':', err));
        }
        HT_TRY(skip_value(scan, depth + 1, err));
    } while (ht_json_scan_accept(scan, ','));
    HT_TRY(ht_json_scan_expect(scan, last, err));
done:
    return st;
}

ht_status ht_json_scan_skip(ht_json_scan* scan, ht_error* err) { return skip_value(scan, 0, err); }
