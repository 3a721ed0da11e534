#include "formats/base/status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char* const status_names[] = {
    "ok", "argument", "out of memory", "I/O", "format", "bounds", "unsupported", "numeric", "device", "interrupted",
};

const char* ht_status_name(ht_status status)
{
    const size_t n = sizeof status_names / sizeof *status_names;
    return (size_t)status < n ? status_names[status] : "unknown status";
}

void ht_error_clear(ht_error* err)
{
    if (err) { *err = (ht_error)HT_ERROR_INIT; }
}

static void record(ht_error* err, ht_status status, uint64_t offset_bytes, const char* format, va_list args)
{
    if (!err || err->status != HT_STATUS_OK) { return; }
    err->status       = status;
    err->offset_bytes = offset_bytes;
    vsnprintf(err->message, sizeof err->message, format, args);
}

ht_status ht_fail(ht_error* err, ht_status status, const char* format, ...)
{
    va_list args;
    va_start(args, format);
    record(err, status, HT_OFFSET_NONE, format, args);
    va_end(args);
    return status;
}

ht_status ht_fail_at(ht_error* err, ht_status status, uint64_t offset_bytes, const char* format, ...)
{
    va_list args;
    va_start(args, format);
    record(err, status, offset_bytes, format, args);
    va_end(args);
    return status;
}

static void set_if_empty(char* field, size_t n_field, const char* text)
{
    if (field[0] == '\0' && text) { snprintf(field, n_field, "%s", text); }
}

void ht_error_set_file(ht_error* err, const char* file)
{
    if (err && err->status != HT_STATUS_OK) { set_if_empty(err->file, sizeof err->file, file); }
}

void ht_error_set_tensor(ht_error* err, const char* tensor)
{
    if (err && err->status != HT_STATUS_OK) { set_if_empty(err->tensor, sizeof err->tensor, tensor); }
}

/* Length of the valid UTF-8 sequence at `s`, 0 when it is not one (RFC 3629: no overlong forms, no surrogates). */
static size_t utf8_length(const unsigned char* s)
{
    if (s[0] < 0x80) { return 1; }
    if (s[0] >= 0xC2 && s[0] <= 0xDF) { return (s[1] & 0xC0) == 0x80 ? 2 : 0; }
    if (s[0] >= 0xE0 && s[0] <= 0xEF) {
        const unsigned low  = s[0] == 0xE0 ? 0xA0 : 0x80;
        const unsigned high = s[0] == 0xED ? 0x9F : 0xBF;
        return s[1] >= low && s[1] <= high && (s[2] & 0xC0) == 0x80 ? 3 : 0;
    }
    if (s[0] >= 0xF0 && s[0] <= 0xF4) {
        const unsigned low  = s[0] == 0xF0 ? 0x90 : 0x80;
        const unsigned high = s[0] == 0xF4 ? 0x8F : 0xBF;
        return s[1] >= low && s[1] <= high && (s[2] & 0xC0) == 0x80 && (s[3] & 0xC0) == 0x80 ? 4 : 0;
    }
    return 0;
}

static char* escape(const char* text, bool keep_controls, char* buf, uint64_t n_buf)
{
    size_t used = 0;
    if (n_buf == 0) { return buf; }
    for (const unsigned char* s = (const unsigned char*)text; *s;) {
        const size_t n     = utf8_length(s);
        const bool   plain = n > 0 && (keep_controls || !(s[0] < 0x20 || s[0] == 0x7F));
        const size_t need  = plain ? n : 4;
        if (used + need + 1 > n_buf) { break; }
        if (plain) { memcpy(buf + used, s, n); }
        else { snprintf(buf + used, 5, "\\x%02x", s[0]); }
        used += need;
        s += plain ? n : 1;
    }
    buf[used] = '\0';
    return buf;
}

char* ht_printable(const char* text, char* buf, uint64_t n_buf) { return escape(text, false, buf, n_buf); }
char* ht_utf8_clean(const char* text, char* buf, uint64_t n_buf) { return escape(text, true, buf, n_buf); }

char* ht_error_format(const ht_error* err, char* buf, uint64_t n_buf)
{
    char line[1024], where[32] = "";
    if (err->offset_bytes != HT_OFFSET_NONE) { snprintf(where, sizeof where, " @ 0x%" PRIx64, err->offset_bytes); }
    snprintf(line, sizeof line, "%s%s%s%s%s%s (%s)", err->file, err->file[0] ? (err->tensor[0] ? ": " : "") : "",
             err->tensor, where, err->file[0] || err->tensor[0] || where[0] ? ": " : "", err->message,
             ht_status_name(err->status));
    return ht_printable(line, buf, n_buf);
}
