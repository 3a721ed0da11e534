#include "formats/json_value.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file.h"

#define MAX_EXACT_INTEGER 9007199254740992.0 /* 2^53 */

struct ht_json {
    cJSON* root;
    char*  file;
};

/* An ht_json_value is a cJSON node under another name. */
static const cJSON*         node_of(const ht_json_value* value) { return (const cJSON*)(const void*)value; }
static const ht_json_value* value_of(const cJSON* node) { return (const ht_json_value*)(const void*)node; }

/* --- paths -------------------------------------------------------------------------------------------------------------------------- */

/* cJSON keeps no parent links, so a path is found by walking the document: only failures pay for it. */
static bool find_path(const cJSON* node, const cJSON* target, char* buf, size_t n_buf, size_t n_used)
{
    size_t index = 0;
    if (node == target) { return true; }
    for (const cJSON* child = node->child; child; child = child->next, index++) {
        size_t room = n_buf - n_used;
        int    n    = cJSON_IsArray(node) ? snprintf(buf + n_used, room, "[%zu]", index)
                                          : snprintf(buf + n_used, room, "%s%s", n_used ? "." : "", child->string);
        const size_t n_now = n < 0 || (size_t)n >= room ? n_buf - 1 : n_used + (size_t)n;
        if (find_path(child, target, buf, n_buf, n_now)) { return true; }
        buf[n_used] = '\0';
    }
    return false;
}

char* ht_json_path(const ht_json* json, const ht_json_value* value, char* buf, size_t n_buf)
{
    if (n_buf > 0) { buf[0] = '\0'; }
    if (n_buf > 1 && value) { find_path(json->root, node_of(value), buf, n_buf, 0); }
    return buf;
}

/* --- parsing ------------------------------------------------------------------------------------------------------------------------ */

static int compare_keys(const void* a, const void* b) { return strcmp(*(const char* const*)a, *(const char* const*)b); }

/* cJSON keeps both members of a doubled key; readers would disagree on which one counts. */
static ht_status check_unique_keys(const ht_json* json, const cJSON* object, ht_error* err)
{
    ht_status    st   = HT_STATUS_OK;
    const size_t n    = (size_t)cJSON_GetArraySize(object);
    const char** keys = malloc((n + 1) * sizeof *keys);
    size_t       i    = 0;
    char         path[256];
    HT_CHECK(keys, NOMEM, "keys of a JSON object");
    for (const cJSON* child = object->child; child; child = child->next) { keys[i++] = child->string; }
    qsort(keys, n, sizeof *keys, compare_keys);
    for (i = 1; i < n; i++) {
        if (strcmp(keys[i - 1], keys[i]) != 0) { continue; }
        ht_json_path(json, value_of(object), path, sizeof path);
        HT_CHECK(0, FORMAT, "duplicate key \"%s\"%s%s", keys[i], path[0] ? " in " : "", path);
    }
done:
    free(keys);
    return st;
}

/* Depth is bounded by cJSON's own nesting limit (1000). */
static ht_status check_tree(const ht_json* json, const cJSON* node, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    if (cJSON_IsObject(node)) { HT_TRY(check_unique_keys(json, node, err)); }
    for (const cJSON* child = node->child; child; child = child->next) {
        if (child->child) { HT_TRY(check_tree(json, child, err)); }
    }
done:
    return st;
}

/* cJSON turns \u0000 into an early end of the string: find such an escape before it does. A backslash escapes the byte after it. */
static const char* find_nul_escape(const char* text, size_t n_bytes)
{
    for (size_t i = 0; i + 5 < n_bytes; i++) {
        if (text[i] != '\\') { continue; }
        if (memcmp(text + i, "\\u0000", 6) == 0) { return text + i; }
        i++;
    }
    return NULL;
}

static ht_status parse(ht_json* json, const char* text, size_t n_bytes, ht_error* err)
{
    ht_status   st  = HT_STATUS_OK;
    const char* end = NULL;
    const char* nul = memchr(text, '\0', n_bytes);
    if (!nul) { nul = find_nul_escape(text, n_bytes); }
    if (nul) { return ht_fail_at(err, HT_STATUS_FORMAT, (uint64_t)(nul - text), "JSON text with a NUL character"); }
    json->root = cJSON_ParseWithLengthOpts(text, n_bytes, &end, 0);
    if (!json->root) {
        const uint64_t at = end && end >= text ? (uint64_t)(end - text) : 0;
        return ht_fail_at(err, HT_STATUS_FORMAT, at, "not valid JSON at byte %" PRIu64 " of %zu", at, n_bytes);
    }
    while (end < text + n_bytes && strchr(" \t\r\n", *end)) { end++; }
    if (end != text + n_bytes) {
        return ht_fail_at(err, HT_STATUS_FORMAT, (uint64_t)(end - text), "not valid JSON: text after the end of the document");
    }
    HT_TRY(check_tree(json, json->root, err));
done:
    return st;
}

ht_status ht_json_parse(ht_json** out, const char* text, size_t n_bytes, const char* file, ht_error* err)
{
    ht_status st   = HT_STATUS_OK;
    ht_json*  json = calloc(1, sizeof *json);
    HT_CHECK(json, NOMEM, "JSON document");
    json->file = strdup(file ? file : "");
    HT_CHECK(json->file, NOMEM, "JSON file name");
    HT_TRY(parse(json, text, n_bytes, err));
    *out = json;
    json = NULL;
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, file); }
    ht_json_free(json);
    return st;
}

ht_status ht_json_read(ht_json** out, const char* path, size_t max_bytes, ht_error* err)
{
    ht_status st   = HT_STATUS_OK;
    ht_file*  file = NULL;
    char*     text = NULL;
    HT_TRY(ht_file_open(&file, path, err));
    const uint64_t n_bytes = ht_file_size(file);
    HT_CHECK(n_bytes <= max_bytes, BOUNDS, "%" PRIu64 " bytes of JSON, the limit is %zu", n_bytes, max_bytes);
    text = malloc((size_t)n_bytes + 1);
    HT_CHECK(text, NOMEM, "JSON text of %" PRIu64 " bytes", n_bytes);
    HT_TRY(ht_file_read_at(file, 0, text, (size_t)n_bytes, err));
    HT_TRY(ht_json_parse(out, text, (size_t)n_bytes, path, err));
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    free(text);
    ht_file_close(file);
    return st;
}

void ht_json_free(ht_json* json)
{
    if (!json) { return; }
    cJSON_Delete(json->root);
    free(json->file);
    free(json);
}

const ht_json_value* ht_json_root(const ht_json* json) { return value_of(json->root); }

ht_status ht_json_lift(ht_json* json, const char* key, ht_error* err)
{
    cJSON* inner = cJSON_GetObjectItemCaseSensitive(json->root, key);
    if (!cJSON_IsObject(inner)) { return HT_STATUS_OK; }
    while (inner->child) {
        cJSON* member = cJSON_DetachItemViaPointer(inner, inner->child);
        /* a member of the same name as the object itself would free the object that is being emptied */
        if (strcmp(member->string, key) == 0) {
            cJSON_Delete(member);
            continue;
        }
        cJSON_DeleteItemFromObjectCaseSensitive(json->root, member->string);
        char*      name  = strdup(member->string);
        const bool added = name && cJSON_AddItemToObject(json->root, name, member);
        free(name);
        if (!added) {
            cJSON_Delete(member);
            return ht_fail(err, HT_STATUS_NOMEM, "JSON member");
        }
    }
    return HT_STATUS_OK;
}

/* --- walking ------------------------------------------------------------------------------------------------------------------------ */

ht_json_kind ht_json_kind_of(const ht_json_value* value)
{
    const cJSON* node = node_of(value);
    if (cJSON_IsBool(node)) { return HT_JSON_KIND_BOOL; }
    if (cJSON_IsNumber(node)) { return HT_JSON_KIND_NUMBER; }
    if (cJSON_IsString(node)) { return HT_JSON_KIND_STRING; }
    if (cJSON_IsArray(node)) { return HT_JSON_KIND_ARRAY; }
    if (cJSON_IsObject(node)) { return HT_JSON_KIND_OBJECT; }
    return HT_JSON_KIND_NULL;
}

static const char* const kind_names[] = { "null", "a boolean", "a number", "a string", "an array", "an object" };

const char* ht_json_kind_name(const ht_json_value* value) { return kind_names[ht_json_kind_of(value)]; }

const ht_json_value* ht_json_member(const ht_json_value* object, const char* key)
{
    return cJSON_IsObject(node_of(object)) ? value_of(cJSON_GetObjectItemCaseSensitive(node_of(object), key)) : NULL;
}

const ht_json_value* ht_json_first(const ht_json_value* container) { return container ? value_of(node_of(container)->child) : NULL; }
const ht_json_value* ht_json_next(const ht_json_value* value) { return value ? value_of(node_of(value)->next) : NULL; }
const char*          ht_json_key(const ht_json_value* member) { return member ? node_of(member)->string : NULL; }

int64_t ht_json_count(const ht_json_value* container)
{
    int64_t n = 0;
    for (const ht_json_value* v = ht_json_first(container); v; v = ht_json_next(v)) { n++; }
    return n;
}

const char* ht_json_as_string(const ht_json_value* value) { return cJSON_GetStringValue(node_of(value)); }

bool ht_json_as_bool(const ht_json_value* value, bool* out)
{
    if (!cJSON_IsBool(node_of(value))) { return false; }
    *out = cJSON_IsTrue(node_of(value)) != 0;
    return true;
}

bool ht_json_as_f64(const ht_json_value* value, double* out)
{
    if (!cJSON_IsNumber(node_of(value))) { return false; }
    *out = node_of(value)->valuedouble;
    return true;
}

bool ht_json_as_i64(const ht_json_value* value, int64_t* out)
{
    double number = 0.0;
    if (!ht_json_as_f64(value, &number) || !(number >= -MAX_EXACT_INTEGER && number <= MAX_EXACT_INTEGER)) { return false; }
    if ((double)(int64_t)number != number) { return false; }
    *out = (int64_t)number;
    return true;
}

/* --- typed reads -------------------------------------------------------------------------------------------------------------------- */

static ht_status fail_member(const ht_json* json, const ht_json_value* object, const char* key, const char* problem, ht_error* err)
{
    char path[256];
    ht_json_path(json, object, path, sizeof path);
    ht_fail(err, HT_STATUS_FORMAT, "%s%s%s: %s", path, path[0] ? "." : "", key, problem);
    ht_error_set_file(err, json->file);
    return HT_STATUS_FORMAT;
}

/* The member, or NULL when it is absent or null; a wrong kind fails. */
static ht_status find_member(const ht_json* json, const ht_json_value* object, const char* key, bool required, ht_json_kind kind,
                             const ht_json_value** out, ht_error* err)
{
    const ht_json_value* member = ht_json_member(object, key);
    const ht_json_kind   found  = ht_json_kind_of(member);
    char                 problem[64];
    *out = NULL;
    if (found == HT_JSON_KIND_NULL) { return required ? fail_member(json, object, key, member ? "is null" : "is missing", err) : HT_STATUS_OK; }
    if (found != kind) {
        snprintf(problem, sizeof problem, "expected %s, found %s", kind_names[kind], kind_names[found]);
        return fail_member(json, object, key, problem, err);
    }
    *out = member;
    return HT_STATUS_OK;
}

#define GET(kind)                                                                            \
    const ht_json_value* member = NULL;                                                      \
    const ht_status      st     = find_member(json, object, key, required, kind, &member, err); \
    if (st != HT_STATUS_OK || !member) { return st; }

ht_status ht_json_get_string(const ht_json* json, const ht_json_value* object, const char* key, bool required, const char** out, ht_error* err)
{
    GET(HT_JSON_KIND_STRING)
    *out = ht_json_as_string(member);
    return HT_STATUS_OK;
}

ht_status ht_json_get_bool(const ht_json* json, const ht_json_value* object, const char* key, bool required, bool* out, ht_error* err)
{
    GET(HT_JSON_KIND_BOOL)
    ht_json_as_bool(member, out);
    return HT_STATUS_OK;
}

ht_status ht_json_get_f64(const ht_json* json, const ht_json_value* object, const char* key, bool required, double* out, ht_error* err)
{
    double number = 0.0;
    GET(HT_JSON_KIND_NUMBER)
    ht_json_as_f64(member, &number);
    if (!isfinite(number)) { return fail_member(json, object, key, "the number does not fit a double", err); }
    *out = number;
    return HT_STATUS_OK;
}

ht_status ht_json_get_i64(const ht_json* json, const ht_json_value* object, const char* key, bool required, int64_t min, int64_t max,
                          int64_t* out, ht_error* err)
{
    int64_t number = 0;
    char    problem[128];
    GET(HT_JSON_KIND_NUMBER)
    if (!ht_json_as_i64(member, &number) || number < min || number > max) {
        double shown = 0.0;
        ht_json_as_f64(member, &shown);
        snprintf(problem, sizeof problem, "%.17g is not an integer in %" PRId64 "..%" PRId64, shown, min, max);
        return fail_member(json, object, key, problem, err);
    }
    *out = number;
    return HT_STATUS_OK;
}

ht_status ht_json_get_object(const ht_json* json, const ht_json_value* object, const char* key, bool required, const ht_json_value** out,
                             ht_error* err)
{
    GET(HT_JSON_KIND_OBJECT)
    *out = member;
    return HT_STATUS_OK;
}

ht_status ht_json_get_array(const ht_json* json, const ht_json_value* object, const char* key, bool required, const ht_json_value** out,
                            ht_error* err)
{
    GET(HT_JSON_KIND_ARRAY)
    *out = member;
    return HT_STATUS_OK;
}
