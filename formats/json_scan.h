/*
 * A pull reader over JSON text, for the header of a safetensors file: a header of 200,000 tensors is 16 MB of text, and a tree of it would take
 * ten times that. Nothing is allocated: strings are decoded where they lie, over their own text.
 *
 * Every failure is FORMAT with the byte position in the file (base_bytes + position). After a failure the scanner must not be used.
 */
#ifndef HT_FORMATS_JSON_SCAN_H
#define HT_FORMATS_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

typedef struct ht_json_scan {
    char*    text;       /* n_bytes, changed by reading strings */
    size_t   n_bytes;
    size_t   pos;
    uint64_t base_bytes; /* where the text starts in its file   */
} ht_json_scan;

/* The next character that is not white space, unread; '\0' at the end. */
char ht_json_scan_peek(ht_json_scan* scan);

/* Take `c`; false when something else comes. */
bool ht_json_scan_accept(ht_json_scan* scan, char c);

ht_status ht_json_scan_expect(ht_json_scan* scan, char c, ht_error* err);

/* A string, decoded (escapes and surrogate pairs to UTF-8) and NUL-terminated inside the text; \u0000 is refused. */
ht_status ht_json_scan_string(ht_json_scan* scan, const char** out, ht_error* err);

/* A non-negative integer written as digits only: no sign, point, exponent or quotes. */
ht_status ht_json_scan_u64(ht_json_scan* scan, uint64_t* out, ht_error* err);

/* Any value, checked for form and passed over. */
ht_status ht_json_scan_skip(ht_json_scan* scan, ht_error* err);

/* A failure at the present position. */
ht_status ht_json_scan_fail(const ht_json_scan* scan, const char* expected, ht_error* err);

#endif
