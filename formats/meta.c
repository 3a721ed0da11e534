#include "formats/meta.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/checked.h"
#include "formats/base/name_map.h"

static const struct { const char* name; size_t n_bytes; } type_facts[HT_META_TYPE_COUNT] = {
    [HT_META_TYPE_U8] = { "u8", 1 },       [HT_META_TYPE_I8] = { "i8", 1 },     [HT_META_TYPE_U16] = { "u16", 2 },
    [HT_META_TYPE_I16] = { "i16", 2 },     [HT_META_TYPE_U32] = { "u32", 4 },   [HT_META_TYPE_I32] = { "i32", 4 },
    [HT_META_TYPE_F32] = { "f32", 4 },     [HT_META_TYPE_BOOL] = { "bool", 1 }, [HT_META_TYPE_STRING] = { "string", 0 },
    [HT_META_TYPE_ARRAY] = { "array", 0 }, [HT_META_TYPE_U64] = { "u64", 8 },   [HT_META_TYPE_I64] = { "i64", 8 },
    [HT_META_TYPE_F64] = { "f64", 8 },
};

size_t      ht_meta_type_bytes(uint32_t type) { return type < HT_META_TYPE_COUNT ? type_facts[type].n_bytes : 0; }
const char* ht_meta_type_name(uint32_t type) { return type < HT_META_TYPE_COUNT ? type_facts[type].name : "unknown"; }

/* A pair and the memory behind it: the key, the values or the string descriptors, and one blob for the bytes of all strings. */
typedef struct entry {
    ht_meta_kv kv;
    char*      key;
    void*      values;
    ht_string* strings;
    char*      text;
} entry;

struct ht_meta {
    entry**      entries;
    int64_t      n, capacity;
    ht_name_map* by_key;
};

static void entry_free(entry* e)
{
    if (!e) { return; }
    free(e->key);
    free(e->values);
    free(e->strings);
    free(e->text);
    free(e);
}

ht_meta* ht_meta_create(void)
{
    ht_meta* meta = calloc(1, sizeof *meta);
    if (!meta) { return NULL; }
    meta->by_key = ht_name_map_create();
    if (!meta->by_key) {
        free(meta);
        return NULL;
    }
    return meta;
}

void ht_meta_free(ht_meta* meta)
{
    if (!meta) { return; }
    for (int64_t i = 0; i < meta->n; i++) { entry_free(meta->entries[i]); }
    free(meta->entries);
    ht_name_map_free(meta->by_key);
    free(meta);
}

int64_t           ht_meta_count(const ht_meta* meta) { return meta->n; }
const ht_meta_kv* ht_meta_at(const ht_meta* meta, int64_t index) { return &meta->entries[index]->kv; }

const ht_meta_kv* ht_meta_find(const ht_meta* meta, const char* key)
{
    const int64_t index = ht_name_map_find(meta->by_key, key, strlen(key));
    return index >= 0 ? &meta->entries[index]->kv : NULL;
}

/* The map points at the keys of the entries, so it is made anew whenever one of them goes away. Rare: a handful of times per file. */
static bool rebuild_map(ht_meta* meta)
{
    ht_name_map* map = ht_name_map_create();
    for (int64_t i = 0; map && i < meta->n; i++) {
        if (ht_name_map_add(map, meta->entries[i]->key, strlen(meta->entries[i]->key), i) != i) {
            ht_name_map_free(map);
            map = NULL;
        }
    }
    if (!map) { return false; }
    ht_name_map_free(meta->by_key);
    meta->by_key = map;
    return true;
}

static bool reserve_one(ht_meta* meta)
{
    if (meta->n < meta->capacity) { return true; }
    const int64_t capacity = meta->capacity ? meta->capacity * 2 : 64;
    entry**       grown    = realloc(meta->entries, (size_t)capacity * sizeof(entry*));
    if (!grown) { return false; }
    meta->entries  = grown;
    meta->capacity = capacity;
    return true;
}

/* Takes ownership of `e` on success. A key that exists keeps its place: only what is behind it changes, the key's memory stays. */
static ht_status put(ht_meta* meta, entry* e, ht_error* err)
{
    ht_status     st    = HT_STATUS_OK;
    const int64_t index = ht_name_map_find(meta->by_key, e->key, strlen(e->key));
    if (index >= 0) {
        entry* old = meta->entries[index];
        char*  key = old->key;
        old->key   = e->key;
        e->key     = key;
        e->kv.key  = key;
        meta->entries[index] = e;
        entry_free(old);
        return HT_STATUS_OK;
    }
    HT_CHECK(reserve_one(meta), NOMEM, "metadata");
    HT_CHECK(ht_name_map_add(meta->by_key, e->key, strlen(e->key), meta->n) == meta->n, NOMEM, "metadata");
    meta->entries[meta->n++] = e;
done:
    return st;
}

static entry* entry_create(const char* key, ht_meta_type type, bool is_array, uint64_t n_values)
{
    entry* e = calloc(1, sizeof *e);
    if (!e) { return NULL; }
    e->key = strdup(key);
    e->kv  = (ht_meta_kv){ e->key, type, is_array, n_values, NULL, NULL };
    if (e->key) { return e; }
    free(e);
    return NULL;
}

ht_status ht_meta_set_values(ht_meta* meta, const char* key, ht_meta_type type, bool is_array, uint64_t n_values, const void* values,
                             ht_error* err)
{
    ht_status    st      = HT_STATUS_OK;
    const size_t n_each  = ht_meta_type_bytes(type);
    size_t       n_bytes = 0;
    entry*       e       = NULL;
    HT_CHECK(key[0] != '\0', ARG, "a metadata key is empty");
    HT_CHECK(n_each > 0 && (is_array || n_values == 1), ARG, "%s: not a value of a fixed size", key);
    HT_CHECK(ht_mul_size(n_each, (size_t)n_values, &n_bytes), BOUNDS, "%s: %" PRIu64 " values overflow", key, n_values);
    e = entry_create(key, type, is_array, n_values);
    HT_CHECK(e, NOMEM, "metadata key %s", key);
    e->values = malloc(n_bytes + 1);
    HT_CHECK(e->values, NOMEM, "metadata %s", key);
    if (n_bytes > 0) { memcpy(e->values, values, n_bytes); }
    e->kv.data = e->values;
    HT_TRY(put(meta, e, err));
    e = NULL;
done:
    entry_free(e);
    return st;
}

ht_status ht_meta_set_strings(ht_meta* meta, const char* key, bool is_array, uint64_t n_values, const ht_string* strings, ht_error* err)
{
    ht_status st      = HT_STATUS_OK;
    size_t    n_bytes = 0, n_descriptors = 0;
    entry*    e       = NULL;
    HT_CHECK(key[0] != '\0', ARG, "a metadata key is empty");
    HT_CHECK(is_array || n_values == 1, ARG, "%s: one string expected", key);
    HT_CHECK(ht_mul_size((size_t)n_values, sizeof(ht_string), &n_descriptors), BOUNDS, "%s: %" PRIu64 " strings overflow", key, n_values);
    for (uint64_t i = 0; i < n_values; i++) { n_bytes += strings[i].n_bytes + 1; }
    e = entry_create(key, HT_META_TYPE_STRING, is_array, n_values);
    HT_CHECK(e, NOMEM, "metadata key %s", key);
    e->strings = malloc(n_descriptors + 1);
    e->text    = malloc(n_bytes + 1);
    HT_CHECK(e->strings && e->text, NOMEM, "metadata %s", key);
    char* to = e->text;
    for (uint64_t i = 0; i < n_values; i++) {
        if (strings[i].n_bytes > 0) { memcpy(to, strings[i].data, strings[i].n_bytes); }
        to[strings[i].n_bytes] = '\0';
        e->strings[i]          = (ht_string){ to, strings[i].n_bytes };
        to += strings[i].n_bytes + 1;
    }
    e->kv.strings = e->strings;
    HT_TRY(put(meta, e, err));
    e = NULL;
done:
    entry_free(e);
    return st;
}

ht_status ht_meta_set_u32(ht_meta* meta, const char* key, uint32_t value, ht_error* err)
{
    return ht_meta_set_values(meta, key, HT_META_TYPE_U32, false, 1, &value, err);
}

ht_status ht_meta_set_u64(ht_meta* meta, const char* key, uint64_t value, ht_error* err)
{
    return ht_meta_set_values(meta, key, HT_META_TYPE_U64, false, 1, &value, err);
}

ht_status ht_meta_set_i32(ht_meta* meta, const char* key, int32_t value, ht_error* err)
{
    return ht_meta_set_values(meta, key, HT_META_TYPE_I32, false, 1, &value, err);
}

ht_status ht_meta_set_f32(ht_meta* meta, const char* key, float value, ht_error* err)
{
    return ht_meta_set_values(meta, key, HT_META_TYPE_F32, false, 1, &value, err);
}

ht_status ht_meta_set_bool(ht_meta* meta, const char* key, bool value, ht_error* err)
{
    const uint8_t byte = value;
    return ht_meta_set_values(meta, key, HT_META_TYPE_BOOL, false, 1, &byte, err);
}

ht_status ht_meta_set_string(ht_meta* meta, const char* key, const char* text, ht_error* err)
{
    const ht_string string = { text, strlen(text) };
    return ht_meta_set_strings(meta, key, false, 1, &string, err);
}

bool ht_meta_kv_equal(const ht_meta_kv* a, const ht_meta_kv* b)
{
    if (a->type != b->type || a->is_array != b->is_array || a->n_values != b->n_values) { return false; }
    if (!a->strings) { return memcmp(a->data, b->data, ht_meta_type_bytes(a->type) * (size_t)a->n_values) == 0; }
    for (uint64_t i = 0; i < a->n_values; i++) {
        const ht_string *x = &a->strings[i], *y = &b->strings[i];
        if (x->n_bytes != y->n_bytes || memcmp(x->data, y->data, x->n_bytes) != 0) { return false; }
    }
    return true;
}

void ht_meta_remove(ht_meta* meta, const char* key)
{
    const int64_t index = ht_name_map_find(meta->by_key, key, strlen(key));
    if (index < 0) { return; }
    entry* removed = meta->entries[index];
    meta->n--;
    memmove(&meta->entries[index], &meta->entries[index + 1], (size_t)(meta->n - index) * sizeof(entry*));
    if (rebuild_map(meta)) {
        entry_free(removed);
    } else { /* no memory for a new map: the old one stays valid only with everything in its place */
        memmove(&meta->entries[index + 1], &meta->entries[index], (size_t)(meta->n - index) * sizeof(entry*));
        meta->entries[index] = removed;
        meta->n++;
    }
}

ht_status ht_meta_clone(ht_meta** out, const ht_meta* meta, ht_error* err)
{
    ht_status st   = HT_STATUS_OK;
    ht_meta*  copy = ht_meta_create();
    HT_CHECK(copy, NOMEM, "metadata");
    for (int64_t i = 0; i < meta->n; i++) {
        const ht_meta_kv* kv = &meta->entries[i]->kv;
        if (kv->strings) { HT_TRY(ht_meta_set_strings(copy, kv->key, kv->is_array, kv->n_values, kv->strings, err)); }
        else { HT_TRY(ht_meta_set_values(copy, kv->key, kv->type, kv->is_array, kv->n_values, kv->data, err)); }
    }
    *out = copy;
    copy = NULL;
done:
    ht_meta_free(copy);
    return st;
}

/* --- typed reads --------------------------------------------------------------------------------------------------------- */

static ht_status wrong_type(const ht_meta_kv* kv, const char* expected, ht_error* err)
{
    return ht_fail(err, HT_STATUS_FORMAT, "%s: expected %s, found %s%s", kv->key, expected, ht_meta_type_name(kv->type), kv->is_array ? " array" : "");
}

static ht_status absent(const char* key, bool required, ht_error* err)
{
    return required ? ht_fail(err, HT_STATUS_FORMAT, "metadata key %s is missing", key) : HT_STATUS_OK;
}

/* Any integer type as i64; false when it is none or does not fit. */
static bool integer_of(const ht_meta_kv* kv, int64_t* out)
{
    uint64_t raw = 0;
    if (kv->is_array || kv->strings) { return false; }
    memcpy(&raw, kv->data, ht_meta_type_bytes(kv->type));
    switch (kv->type) {
    case HT_META_TYPE_U8:
    case HT_META_TYPE_U16:
    case HT_META_TYPE_U32: *out = (int64_t)raw; return true;
    case HT_META_TYPE_I8: *out = (int8_t)(uint8_t)raw; return true;
    case HT_META_TYPE_I16: *out = (int16_t)(uint16_t)raw; return true;
    case HT_META_TYPE_I32: *out = (int32_t)(uint32_t)raw; return true;
    case HT_META_TYPE_I64: *out = (int64_t)raw; return true;
    case HT_META_TYPE_U64:
        if (raw > INT64_MAX) { return false; }
        *out = (int64_t)raw;
        return true;
    default: return false;
    }
}

ht_status ht_meta_get_i64(const ht_meta* meta, const char* key, bool required, int64_t* out, ht_error* err)
{
    const ht_meta_kv* kv = ht_meta_find(meta, key);
    if (!kv) { return absent(key, required, err); }
    return integer_of(kv, out) ? HT_STATUS_OK : wrong_type(kv, "an integer", err);
}

ht_status ht_meta_get_u32(const ht_meta* meta, const char* key, bool required, uint32_t* out, ht_error* err)
{
    int64_t           value = 0;
    const ht_meta_kv* kv    = ht_meta_find(meta, key);
    if (!kv) { return absent(key, required, err); }
    if (!integer_of(kv, &value)) { return wrong_type(kv, "u32", err); }
    if (value < 0 || value > UINT32_MAX) { return ht_fail(err, HT_STATUS_FORMAT, "%s: %" PRId64 " does not fit u32", key, value); }
    *out = (uint32_t)value;
    return HT_STATUS_OK;
}

ht_status ht_meta_get_f32(const ht_meta* meta, const char* key, bool required, float* out, ht_error* err)
{
    const ht_meta_kv* kv = ht_meta_find(meta, key);
    if (!kv) { return absent(key, required, err); }
    if (!kv->is_array && kv->type == HT_META_TYPE_F32) { memcpy(out, kv->data, sizeof *out); }
    else if (!kv->is_array && kv->type == HT_META_TYPE_F64) {
        double value;
        memcpy(&value, kv->data, sizeof value);
        *out = (float)value;
    } else {
        return wrong_type(kv, "f32", err);
    }
    return HT_STATUS_OK;
}

ht_status ht_meta_get_bool(const ht_meta* meta, const char* key, bool required, bool* out, ht_error* err)
{
    const ht_meta_kv* kv = ht_meta_find(meta, key);
    if (!kv) { return absent(key, required, err); }
    if (kv->is_array || kv->type != HT_META_TYPE_BOOL) { return wrong_type(kv, "bool", err); }
    *out = *(const uint8_t*)kv->data != 0;
    return HT_STATUS_OK;
}

ht_status ht_meta_get_string(const ht_meta* meta, const char* key, bool required, const char** out, ht_error* err)
{
    const ht_meta_kv* kv = ht_meta_find(meta, key);
    if (!kv) { return absent(key, required, err); }
    if (kv->is_array || kv->type != HT_META_TYPE_STRING) { return wrong_type(kv, "a string", err); }
    *out = kv->strings[0].data;
    return HT_STATUS_OK;
}

ht_status ht_meta_get_array(const ht_meta* meta, const char* key, bool required, ht_meta_type type, const ht_meta_kv** out, ht_error* err)
{
    const ht_meta_kv* kv = ht_meta_find(meta, key);
    if (!kv) { return absent(key, required, err); }
    if (!kv->is_array || kv->type != type) {
        return ht_fail(err, HT_STATUS_FORMAT, "%s: expected %s array, found %s%s", key, ht_meta_type_name(type), ht_meta_type_name(kv->type),
                       kv->is_array ? " array" : "");
    }
    *out = kv;
    return HT_STATUS_OK;
}
