/*
 * Model metadata: an ordered list of typed key-value pairs, exactly what a GGUF file's header holds. A GGUF reader fills it from bytes, the
 * Hugging Face importer from config.json and the tokenizer files; the writer and the runtime take it from there and never see the difference.
 *
 * Values are copied in and owned by the ht_meta. Not thread-safe while it is being changed.
 */
#ifndef HT_FORMATS_META_H
#define HT_FORMATS_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers are those of the file format (gguf.md, "gguf_metadata_value_type"). */
typedef enum ht_meta_type {
    HT_META_TYPE_U8 = 0, HT_META_TYPE_I8, HT_META_TYPE_U16, HT_META_TYPE_I16, HT_META_TYPE_U32, HT_META_TYPE_I32, HT_META_TYPE_F32,
    HT_META_TYPE_BOOL, HT_META_TYPE_STRING, HT_META_TYPE_ARRAY, HT_META_TYPE_U64, HT_META_TYPE_I64, HT_META_TYPE_F64,
    HT_META_TYPE_COUNT
} ht_meta_type;

/* Bytes of a fixed-size value; 0 for strings, arrays and unknown numbers. */
size_t      ht_meta_type_bytes(uint32_t type);
const char* ht_meta_type_name(uint32_t type); /* "u8", "string", …; "unknown" */

/* Bytes with a length; may contain NULs and invalid UTF-8, and is NUL-terminated beyond n_bytes for convenience. */
typedef struct ht_string {
    const char* data;
    size_t      n_bytes;
} ht_string;

/* One pair, as stored. For scalars and strings n_values is 1. */
typedef struct ht_meta_kv {
    const char*  key;
    ht_meta_type type;        /* the element type for arrays                                                       */
    bool         is_array;
    uint64_t     n_values;
    const void*  data;        /* fixed-size types: n_values little-endian values packed, 8-byte aligned; else NULL */
    const ht_string* strings; /* HT_META_TYPE_STRING: n_values strings; else NULL                                  */
} ht_meta_kv;

typedef struct ht_meta ht_meta;

ht_meta* ht_meta_create(void);          /* NULL when out of memory */
void     ht_meta_free(ht_meta* meta);   /* NULL allowed            */
ht_status ht_meta_clone(ht_meta** out, const ht_meta* meta, ht_error* err);

int64_t           ht_meta_count(const ht_meta* meta);
const ht_meta_kv* ht_meta_at(const ht_meta* meta, int64_t index);          /* in order of insertion       */
const ht_meta_kv* ht_meta_find(const ht_meta* meta, const char* key);      /* NULL when absent; O(1)      */

/*
 * Set a pair: replaces the value of a key that exists (keeping its place), appends otherwise. The values are copied.
 * Errors: NOMEM; ARG empty key.
 */
ht_status ht_meta_set_u32(ht_meta* meta, const char* key, uint32_t value, ht_error* err);
ht_status ht_meta_set_u64(ht_meta* meta, const char* key, uint64_t value, ht_error* err);
ht_status ht_meta_set_i32(ht_meta* meta, const char* key, int32_t value, ht_error* err);
ht_status ht_meta_set_f32(ht_meta* meta, const char* key, float value, ht_error* err);
ht_status ht_meta_set_bool(ht_meta* meta, const char* key, bool value, ht_error* err);
ht_status ht_meta_set_string(ht_meta* meta, const char* key, const char* text, ht_error* err);

/* Any scalar or array of a fixed-size type (n_values packed values). */
ht_status ht_meta_set_values(ht_meta* meta, const char* key, ht_meta_type type, bool is_array, uint64_t n_values, const void* values,
                             ht_error* err);
/* A string or an array of strings. */
ht_status ht_meta_set_strings(ht_meta* meta, const char* key, bool is_array, uint64_t n_values, const ht_string* strings, ht_error* err);

/* Same type, count and bytes; the keys are not compared. */
bool ht_meta_kv_equal(const ht_meta_kv* a, const ht_meta_kv* b);

/* Remove a key; nothing happens when it is absent. */
void ht_meta_remove(ht_meta* meta, const char* key);

/*
 * Typed reads. An absent key leaves *out untouched and is an error (FORMAT, names the key) only when `required`; a key of another
 * type is always an error ("tokenizer.ggml.scores: expected f32 array, found u8"). Integers are accepted from any integer type whose value fits.
 */
ht_status ht_meta_get_u32(const ht_meta* meta, const char* key, bool required, uint32_t* out, ht_error* err);
ht_status ht_meta_get_i64(const ht_meta* meta, const char* key, bool required, int64_t* out, ht_error* err);
ht_status ht_meta_get_f32(const ht_meta* meta, const char* key, bool required, float* out, ht_error* err);
ht_status ht_meta_get_bool(const ht_meta* meta, const char* key, bool required, bool* out, ht_error* err);
ht_status ht_meta_get_string(const ht_meta* meta, const char* key, bool required, const char** out, ht_error* err);
/* An array of exactly this element type; *out points into `meta`. */
ht_status ht_meta_get_array(const ht_meta* meta, const char* key, bool required, ht_meta_type type, const ht_meta_kv** out, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
