/*
 * Status codes and the error context that every fallible function fills.
 *
 * Convention: the status is the return value, results come back through out-parameters that stay untouched on failure.
 * The first failure writes the message; outer frames only add the file or tensor when it is still empty.
 */
#ifndef HT_BASE_STATUS_H
#define HT_BASE_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values are stable: they appear in JSON reports and decide the exit code. */
typedef enum ht_status {
    HT_STATUS_OK = 0,
    HT_STATUS_ARG,         /* the caller (or the command line) asked for something impossible */
    HT_STATUS_NOMEM,       /* an allocation failed                                             */
    HT_STATUS_IO,          /* the operating system refused to open, read, write or rename      */
    HT_STATUS_FORMAT,      /* a file does not say what its format requires                     */
    HT_STATUS_BOUNDS,      /* a length or offset from a file leaves the file or overflows      */
    HT_STATUS_UNSUPPORTED, /* understood, but not something Halftone does                      */
    HT_STATUS_NUMERIC,     /* NaN, Inf, a singular matrix                                      */
    HT_STATUS_DEVICE,      /* the accelerator failed                                           */
    HT_STATUS_CANCELLED    /* interrupted by the user                                          */
} ht_status;

#define HT_OFFSET_NONE UINT64_MAX

/* Caller-owned, never allocated, may be passed as NULL everywhere. */
typedef struct ht_error {
    ht_status status;
    char      file[256];
    char      tensor[128];
    char      message[512];
    uint64_t  offset_bytes; /* position in `file`; HT_OFFSET_NONE when the error is not about a byte */
    int       usage;        /* 1: the command line itself was wrong (exit code 2), not what it names  */
} ht_error;

#define HT_ERROR_INIT { HT_STATUS_OK, "", "", "", HT_OFFSET_NONE, 0 }

/* "ok", "argument", "format" ...: the word in parentheses at the end of an error line. Never NULL. */
const char* ht_status_name(ht_status status);

/* Forget what `err` holds. NULL is allowed. */
void ht_error_clear(ht_error* err);

/*
 * Record the first failure and return `status`, so that `return ht_fail(err, HT_STATUS_IO, "…")` reads naturally.
 * When `err` already holds a failure, it is kept: the innermost frame knows best.
 */
ht_status ht_fail(ht_error* err, ht_status status, const char* format, ...) __attribute__((format(printf, 3, 4)));

/* As ht_fail, for a failure at a byte of a file. */
ht_status ht_fail_at(ht_error* err, ht_status status, uint64_t offset_bytes, const char* format, ...)
    __attribute__((format(printf, 4, 5)));

/* Name the file (tensor) of a failure unless an inner frame already did. NULL `err` or no failure: nothing happens. */
void ht_error_set_file(ht_error* err, const char* file);
void ht_error_set_tensor(ht_error* err, const char* tensor);

/*
 * One line for people: `model.gguf: blk.3.attn_q.weight @ 0x1f40: 6 rows of 130 … (format)`.
 * Control characters and invalid UTF-8 in names are escaped. Writes at most `n_buf` bytes, always terminated; returns `buf`.
 */
char* ht_error_format(const ht_error* err, char* buf, uint64_t n_buf);

/* A copy of `text` fit for one line on a terminal: control bytes and invalid UTF-8 become \xNN. Returns `buf`. */
char* ht_printable(const char* text, char* buf, uint64_t n_buf);

/* A copy of `text` that is UTF-8, for documents with an escape of their own: only invalid bytes become \xNN. Returns `buf`. */
char* ht_utf8_clean(const char* text, char* buf, uint64_t n_buf);

/*
 * The only two macros that jump. Both need `ht_status st` and a label `done` in the function, and `ht_error* err` in scope.
 *   HT_CHECK(condition, NOMEM, "format", …)   when the condition is false, record the failure and go to done
 *   HT_TRY(expression)                        when the call fails, pass its status on and go to done
 */
#define HT_CHECK(condition, name, ...)                          \
    do {                                                        \
        if (!(condition)) {                                     \
            st = ht_fail(err, HT_STATUS_##name, __VA_ARGS__);   \
            goto done;                                          \
        }                                                       \
    } while (0)

#define HT_TRY(expression)                          \
    do {                                            \
        st = (expression);                          \
        if (st != HT_STATUS_OK) { goto done; }      \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
