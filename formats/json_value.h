/*
 * JSON documents (config.json, tokenizer files, shard indexes): parsed once, checked, read through typed getters.
 *
 * This is the only place where cJSON appears: callers copy what they need into their own structs. Parsing refuses what JSON libraries let
 * through: a key that an object has twice, text after the document, NUL bytes. Numbers are doubles; integers are taken only when integral and
 * within +-2^53, where a double is exact.
 * A document is read-only after parsing and may be shared by threads.
 */
#ifndef HT_FORMATS_JSON_VALUE_H
#define HT_FORMATS_JSON_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_json       ht_json;       /* a document                                                     */
typedef struct ht_json_value ht_json_value; /* a value inside a document, valid as long as the document       */

typedef enum ht_json_kind {
    HT_JSON_KIND_NULL, HT_JSON_KIND_BOOL, HT_JSON_KIND_NUMBER, HT_JSON_KIND_STRING, HT_JSON_KIND_ARRAY, HT_JSON_KIND_OBJECT
} ht_json_kind;

/*
 * `text` need not be terminated; `file` (may be NULL) names it in messages and is copied.
 * Errors, with the byte position: FORMAT (syntax, duplicate key with its path, deeper than 1000); NOMEM.
 */
ht_status ht_json_parse(ht_json** out, const char* text, size_t n_bytes, const char* file, ht_error* err);
/* A whole file. Errors: as above; IO; BOUNDS above `max_bytes`. */
ht_status ht_json_read(ht_json** out, const char* path, size_t max_bytes, ht_error* err);
void      ht_json_free(ht_json* json); /* NULL allowed */

const ht_json_value* ht_json_root(const ht_json* json);

/* Members of the object found under `key` at the root replace (or join) the root's own. No such object: nothing happens. */
ht_status ht_json_lift(ht_json* json, const char* key, ht_error* err);

/* --- walking; all of it is NULL-safe: a NULL value is a null ------------------------------------------------------------------------ */

ht_json_kind         ht_json_kind_of(const ht_json_value* value);
const char*          ht_json_kind_name(const ht_json_value* value);                    /* "a string", "an object", …                  */
const ht_json_value* ht_json_member(const ht_json_value* object, const char* key);     /* NULL when absent; linear in the members      */
const ht_json_value* ht_json_first(const ht_json_value* container);                    /* elements or members in order; NULL: none     */
const ht_json_value* ht_json_next(const ht_json_value* value);                         /* NULL after the last                          */
const char*          ht_json_key(const ht_json_value* member);                         /* of a member; NULL for an array element       */
int64_t              ht_json_count(const ht_json_value* container);                    /* linear                                       */

/* The value itself when it is of that kind; false (NULL) leaves *out untouched. */
const char* ht_json_as_string(const ht_json_value* value);
bool        ht_json_as_bool(const ht_json_value* value, bool* out);
bool        ht_json_as_f64(const ht_json_value* value, double* out);
bool        ht_json_as_i64(const ht_json_value* value, int64_t* out);

/* --- typed reads of members --------------------------------------------------------------------------------------------------------- */

/*
 * A member that is absent or null leaves *out untouched and is an error only when `required`; one of another kind is always an error.
 * Messages carry the full path: "rope_scaling.factor: expected a number, found a string".
 * Errors: FORMAT, with the document's file. Strings point into the document.
 */
ht_status ht_json_get_string(const ht_json* json, const ht_json_value* object, const char* key, bool required, const char** out, ht_error* err);
ht_status ht_json_get_bool(const ht_json* json, const ht_json_value* object, const char* key, bool required, bool* out, ht_error* err);
ht_status ht_json_get_f64(const ht_json* json, const ht_json_value* object, const char* key, bool required, double* out, ht_error* err);
/* An integer in min..max (both within +-2^53). */
ht_status ht_json_get_i64(const ht_json* json, const ht_json_value* object, const char* key, bool required, int64_t min, int64_t max,
                          int64_t* out, ht_error* err);
ht_status ht_json_get_object(const ht_json* json, const ht_json_value* object, const char* key, bool required, const ht_json_value** out,
                             ht_error* err);
ht_status ht_json_get_array(const ht_json* json, const ht_json_value* object, const char* key, bool required, const ht_json_value** out,
                            ht_error* err);

/* "rope_scaling.factor", "merges[3]": where a value is in its document, for messages ("" for the root). Returns `buf`. */
char* ht_json_path(const ht_json* json, const ht_json_value* value, char* buf, size_t n_buf);

#ifdef __cplusplus
}
#endif
#endif
