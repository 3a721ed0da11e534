#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/checked.h"
#include "formats/base/name_map.h"
#include "formats/gguf.h"

/*
 * Limits of a header. The largest real vocabularies give arrays of a few MiB and headers of about 20 MiB; these leave a factor of ten and keep
 * memory in proportion to honest files.
 */
enum { MAX_KEY_BYTES = 65535, MAX_VALUE_BYTES = 256 << 20, BUFFER_BYTES = 1 << 16 };

struct ht_gguf {
    ht_file*        file;
    uint32_t        version;
    uint64_t        alignment;
    ht_meta*        meta;
    ht_tensor_info* tensors;
    int64_t         n_tensors;
    ht_name_map*    by_name;
    uint64_t        data_offset;
};

/* --- a sequential reader: every read is checked against what is left of the file ---------------------------------------------- */

typedef struct cursor {
    const ht_file* file;
    uint64_t       offset;           /* of the next byte                */
    uint64_t       buffer_offset;    /* where `buffer` begins           */
    size_t         n_buffer;
    unsigned char  buffer[BUFFER_BYTES];
} cursor;

static uint64_t bytes_left(const cursor* c) { return ht_file_size(c->file) - c->offset; }

static ht_status take(cursor* c, void* to, size_t n_bytes, ht_error* err)
{
    if (n_bytes > bytes_left(c)) {
        return ht_fail_at(err, HT_STATUS_BOUNDS, c->offset, "the header ends early: need %zu bytes, the file has %" PRIu64 " left", n_bytes,
                          bytes_left(c));
    }
    if (n_bytes > BUFFER_BYTES / 2) { /* large values go straight to their place */
        const ht_status st = ht_file_read_at(c->file, c->offset, to, n_bytes, err);
        c->offset += st == HT_STATUS_OK ? n_bytes : 0;
        return st;
    }
    const uint64_t in_buffer = c->offset - c->buffer_offset;
    if (in_buffer > c->n_buffer || n_bytes > c->n_buffer - in_buffer) {
        const size_t    n  = bytes_left(c) < BUFFER_BYTES ? (size_t)bytes_left(c) : BUFFER_BYTES;
        const ht_status st = ht_file_read_at(c->file, c->offset, c->buffer, n, err);
        if (st != HT_STATUS_OK) { return st; }
        c->buffer_offset = c->offset;
        c->n_buffer      = n;
    }
    memcpy(to, c->buffer + (c->offset - c->buffer_offset), n_bytes);
    c->offset += n_bytes;
    return HT_STATUS_OK;
}

static ht_status take_u32(cursor* c, uint32_t* out, ht_error* err)
{
    unsigned char   raw[4] = { 0 };
    const ht_status st = take(c, raw, sizeof raw, err);
    if (st == HT_STATUS_OK) { *out = ht_load_u32le(raw); }
    return st;
}

static ht_status take_u64(cursor* c, uint64_t* out, ht_error* err)
{
    unsigned char   raw[8] = { 0 };
    const ht_status st = take(c, raw, sizeof raw, err);
    if (st == HT_STATUS_OK) { *out = ht_load_u64le(raw); }
    return st;
}

/* Length of a string that follows, checked. */
static ht_status take_length(cursor* c, size_t max_bytes, size_t* out, ht_error* err)
{
    const uint64_t at = c->offset;
    uint64_t       n  = 0;
    const ht_status st = take_u64(c, &n, err);
    if (st != HT_STATUS_OK) { return st; }
    if (n > bytes_left(c)) {
        return ht_fail_at(err, HT_STATUS_BOUNDS, at, "a string of %" PRIu64 " bytes leaves the file, which has %" PRIu64 " left", n, bytes_left(c));
    }
    if (n > max_bytes) { return ht_fail_at(err, HT_STATUS_BOUNDS, at, "a string of %" PRIu64 " bytes is over the limit of %zu", n, max_bytes); }
    *out = (size_t)n;
    return HT_STATUS_OK;
}

/* *out is malloc'd and terminated. */
static ht_status take_string(cursor* c, size_t max_bytes, char** out, size_t* out_n, ht_error* err)
{
    ht_status st   = HT_STATUS_OK;
    size_t    n    = 0;
    char*     text = NULL;
    HT_TRY(take_length(c, max_bytes, &n, err));
    text = malloc(n + 1);
    HT_CHECK(text, NOMEM, "a string of %zu bytes", n);
    HT_TRY(take(c, text, n, err));
    text[n] = '\0';
    *out    = text;
    *out_n  = n;
    text    = NULL;
done:
    free(text);
    return st;
}

/* --- metadata ------------------------------------------------------------------------------------------------------------- */

/* Strings one after another in one growing block; descriptors hold offsets until the block has stopped moving. */
static ht_status take_string_values(cursor* c, ht_meta* meta, const char* key, bool is_array, uint64_t n, ht_error* err)
{
    ht_status  st      = HT_STATUS_OK;
    ht_string* strings = NULL;
    size_t*    starts  = NULL;
    char*      block   = NULL;
    size_t     n_used = 0, n_block = 0, capacity = 0;
    for (uint64_t i = 0; i < n; i++) {
        size_t n_bytes = 0;
        HT_TRY(take_length(c, MAX_VALUE_BYTES, &n_bytes, err));
        if (i == capacity) {
            capacity          = capacity ? capacity * 2 : 16;
            void* const more  = realloc(strings, capacity * sizeof *strings);
            if (more) { strings = more; }
            void* const more2 = realloc(starts, capacity * sizeof *starts);
            if (more2) { starts = more2; }
            HT_CHECK(more && more2, NOMEM, "%s: %" PRIu64 " strings", key, n);
        }
        if (n_used + n_bytes > n_block) {
            n_block           = (n_used + n_bytes) * 2;
            void* const moved = realloc(block, n_block);
            HT_CHECK(moved, NOMEM, "%s: %zu bytes of strings", key, n_block);
            block = moved;
        }
        if (n_bytes > 0) { HT_TRY(take(c, block + n_used, n_bytes, err)); }
        starts[i]  = n_used;
        strings[i] = (ht_string){ NULL, n_bytes };
        n_used += n_bytes;
        HT_CHECK(n_used <= MAX_VALUE_BYTES, BOUNDS, "%s: strings of more than %d bytes", key, MAX_VALUE_BYTES);
    }
    for (uint64_t i = 0; i < n; i++) { strings[i].data = block ? block + starts[i] : ""; }
    HT_TRY(ht_meta_set_strings(meta, key, is_array, n, strings, err));
done:
    free(strings);
    free(starts);
    free(block);
    return st;
}

static ht_status take_fixed_values(cursor* c, ht_meta* meta, const char* key, ht_meta_type type, bool is_array, uint64_t n, ht_error* err)
{
    ht_status      st      = HT_STATUS_OK;
    const uint64_t at      = c->offset;
    uint64_t       n_bytes = 0;
    unsigned char* values  = NULL;
    if (!ht_mul_u64(n, ht_meta_type_bytes(type), &n_bytes) || n_bytes > bytes_left(c)) {
        st = ht_fail_at(err, HT_STATUS_BOUNDS, at, "%s: %" PRIu64 " values of type %s leave the file, which has %" PRIu64 " bytes left", key, n,
                        ht_meta_type_name(type), bytes_left(c));
        goto done;
    }
    HT_CHECK(n_bytes <= MAX_VALUE_BYTES, BOUNDS, "%s: an array of %" PRIu64 " bytes is over the limit of %d", key, n_bytes, MAX_VALUE_BYTES);
    values = malloc((size_t)n_bytes + 1);
    HT_CHECK(values, NOMEM, "%s: %" PRIu64 " bytes", key, n_bytes);
    HT_TRY(take(c, values, (size_t)n_bytes, err));
    for (uint64_t i = 0; type == HT_META_TYPE_BOOL && i < n; i++) {
        if (values[i] > 1) {
            st = ht_fail_at(err, HT_STATUS_FORMAT, at + i, "%s: a bool is 0 or 1, found %u", key, values[i]);
            goto done;
        }
    }
    HT_TRY(ht_meta_set_values(meta, key, type, is_array, n, values, err));
done:
    free(values);
    return st;
}

static ht_status take_pair(cursor* c, ht_meta* meta, ht_error* err)
{
    ht_status      st       = HT_STATUS_OK;
    const uint64_t at       = c->offset;
    char*          key      = NULL;
    size_t         n_key    = 0;
    uint32_t       type     = 0;
    uint64_t       n        = 1;
    HT_TRY(take_string(c, MAX_KEY_BYTES, &key, &n_key, err));
    const char* reason = n_key == 0 ? "is empty" : strlen(key) != n_key ? "holds a NUL byte" : ht_meta_find(meta, key) ? "appears twice" : NULL;
    if (reason) {
        st = ht_fail_at(err, HT_STATUS_FORMAT, at, "the metadata key \"%s\" %s", key, reason);
        goto done;
    }
    const uint64_t at_type = c->offset;
    HT_TRY(take_u32(c, &type, err));
    const bool is_array = type == HT_META_TYPE_ARRAY;
    if (is_array) {
        HT_TRY(take_u32(c, &type, err));
        HT_TRY(take_u64(c, &n, err));
    }
    if (type == HT_META_TYPE_STRING) {
        if (n > bytes_left(c) / 8) {
            st = ht_fail_at(err, HT_STATUS_BOUNDS, at_type, "%s: %" PRIu64 " strings do not fit in the %" PRIu64 " bytes left", key, n, bytes_left(c));
            goto done;
        }
        HT_TRY(take_string_values(c, meta, key, is_array, n, err));
    } else if (ht_meta_type_bytes(type) > 0) {
        HT_TRY(take_fixed_values(c, meta, key, (ht_meta_type)type, is_array, n, err));
    } else {
        st = ht_fail_at(err, HT_STATUS_UNSUPPORTED, at_type, "%s: values of type %" PRIu32 "%s", key, type, type == HT_META_TYPE_ARRAY ? " (array of arrays)" : "");
    }
done:
    free(key);
    return st;
}

/* --- tensor infos ----------------------------------------------------------------------------------------------------------- */

static ht_status take_name(cursor* c, ht_tensor_info* info, ht_error* err)
{
    ht_status      st = HT_STATUS_OK;
    const uint64_t at = c->offset;
    char*          name = NULL;
    size_t         n    = 0;
    HT_TRY(take_string(c, MAX_KEY_BYTES, &name, &n, err));
    const char* fault = ht_tensor_name_fault(name, n);
    if (fault) {
        st = ht_fail_at(err, HT_STATUS_FORMAT, at, "%s (%zu bytes)", fault, n);
        ht_error_set_tensor(err, name);
        goto done;
    }
    memcpy(info->name, name, n + 1);
done:
    free(name);
    return st;
}

static ht_status take_tensor(cursor* c, ht_tensor_info* info, ht_error* err)
{
    ht_status      st     = HT_STATUS_OK;
    const uint64_t at     = c->offset;
    uint32_t       n_dims = 0, type = 0;
    HT_TRY(take_name(c, info, err));
    HT_TRY(take_u32(c, &n_dims, err));
    if (n_dims < 1 || n_dims > HT_GGUF_MAX_DIMS) {
        st = ht_fail_at(err, HT_STATUS_FORMAT, at, "%" PRIu32 " dimensions (1 to %d are possible)", n_dims, HT_GGUF_MAX_DIMS);
        goto done;
    }
    info->n_dims = (int)n_dims;
    for (uint32_t d = 0; d < HT_GGUF_MAX_DIMS; d++) {
        uint64_t n = 1;
        if (d < n_dims) { HT_TRY(take_u64(c, &n, err)); }
        if (n > INT64_MAX) {
            st = ht_fail_at(err, HT_STATUS_BOUNDS, at, "size overflow: dimension %" PRIu32 " is %" PRIu64, d, n);
            goto done;
        }
        info->ne[d] = (int64_t)n;
    }
    HT_TRY(take_u32(c, &type, err));
    HT_TRY(take_u64(c, &info->offset_bytes, err));
    if (!ht_type_get(type)) {
        st = ht_fail_at(err, HT_STATUS_UNSUPPORTED, at, "unknown tensor type %" PRIu32, type);
        goto done;
    }
    info->type = (ht_type)type;
    HT_TRY(ht_tensor_info_size(info, err));
done:
    if (st == HT_STATUS_ARG) { /* what would be a caller's mistake is here the file's */
        st = HT_STATUS_FORMAT;
        if (err) { err->status = st; }
    }
    if (st != HT_STATUS_OK) {
        if (err && err->offset_bytes == HT_OFFSET_NONE) { err->offset_bytes = at; }
        ht_error_set_tensor(err, info->name);
    }
    return st;
}

/* The array grows with what has been read, not with what the file claims. */
static ht_status take_tensors(cursor* c, ht_gguf* g, uint64_t n_claimed, ht_error* err)
{
    ht_status st       = HT_STATUS_OK;
    int64_t   capacity = 0;
    for (uint64_t i = 0; i < n_claimed; i++) {
        if (g->n_tensors == capacity) {
            capacity   = capacity ? capacity * 2 : 64;
            void* more = realloc(g->tensors, (size_t)capacity * sizeof *g->tensors);
            HT_CHECK(more, NOMEM, "%" PRId64 " tensors", capacity);
            g->tensors = more;
        }
        ht_tensor_info* info = &g->tensors[g->n_tensors];
        memset(info, 0, sizeof *info);
        HT_TRY(take_tensor(c, info, err));
        g->n_tensors++;
    }
    for (int64_t i = 0; i < g->n_tensors; i++) {
        const char*   name  = g->tensors[i].name;
        const int64_t index = ht_name_map_add(g->by_name, name, strlen(name), i);
        HT_CHECK(index >= 0, NOMEM, "names of tensors");
        if (index != i) {
            st = ht_fail(err, HT_STATUS_FORMAT, "two tensors have this name (entries %" PRId64 " and %" PRId64 ")", index, i);
            ht_error_set_tensor(err, name);
            goto done;
        }
    }
done:
    return st;
}

static uint64_t padded(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

/* Every offset is the padded sum of the sizes before it, and all of it lies in the file: so nothing overlaps and nothing is missing. */
static ht_status check_offsets(const ht_gguf* g, ht_error* err)
{
    const uint64_t n_file   = ht_file_size(g->file);
    uint64_t       expected = 0, end = g->data_offset;
    for (int64_t i = 0; i < g->n_tensors; i++) {
        const ht_tensor_info* t  = &g->tensors[i];
        ht_status             st = HT_STATUS_OK;
        if (t->offset_bytes != expected) {
            st = ht_fail(err, HT_STATUS_FORMAT, "the data is said to begin at %" PRIu64 ", but the tensors before it end at %" PRIu64 " (%s)",
                         t->offset_bytes, expected, t->offset_bytes < expected ? "overlap" : "gap");
        } else if (g->data_offset > n_file || expected > n_file - g->data_offset || t->n_bytes > n_file - g->data_offset - expected) {
            const uint64_t has = g->data_offset > n_file || expected > n_file - g->data_offset ? 0 : n_file - g->data_offset - expected;
            st = ht_fail_at(err, HT_STATUS_BOUNDS, g->data_offset + expected, "truncated: need %" PRIu64 " bytes, the file has %" PRIu64, t->n_bytes, has);
        }
        if (st != HT_STATUS_OK) {
            ht_error_set_tensor(err, t->name);
            return st;
        }
        end      = g->data_offset + expected + t->n_bytes;
        expected = padded(expected + t->n_bytes, g->alignment); /* both below the file size: no overflow */
    }
    if (n_file > padded(end, g->alignment)) {
        return ht_fail_at(err, HT_STATUS_FORMAT, end, "%" PRIu64 " bytes of trailing data after the tensor section (parts joined by hand? use halftone merge)",
                          n_file - end);
    }
    return HT_STATUS_OK;
}

/* --- the file ----------------------------------------------------------------------------------------------------------------- */

static ht_status take_preamble(cursor* c, ht_gguf* g, uint64_t* n_tensors, uint64_t* n_pairs, ht_error* err)
{
    ht_status     st = HT_STATUS_OK;
    unsigned char magic[4] = { 0 };
    HT_TRY(take(c, magic, sizeof magic, err));
    HT_CHECK(memcmp(magic, "GGUF", 4) == 0, FORMAT, "not a GGUF file: it begins with %02x %02x %02x %02x", magic[0], magic[1], magic[2], magic[3]);
    HT_TRY(take_u32(c, &g->version, err));
    HT_CHECK(g->version == 0 || (g->version & 0xFFFF) != 0, UNSUPPORTED, "a big-endian GGUF file (version bytes are swapped)");
    HT_CHECK(g->version == 2 || g->version == 3, UNSUPPORTED, "GGUF version %" PRIu32 " (2 and 3 are read)", g->version);
    HT_TRY(take_u64(c, n_tensors, err));
    HT_TRY(take_u64(c, n_pairs, err));
    /* the shortest pair is 13 bytes, the shortest tensor info 33 */
    HT_CHECK(*n_pairs <= bytes_left(c) / 13, BOUNDS, "%" PRIu64 " metadata pairs do not fit in the %" PRIu64 " bytes left", *n_pairs, bytes_left(c));
    HT_CHECK(*n_tensors <= bytes_left(c) / 33, BOUNDS, "%" PRIu64 " tensors do not fit in the %" PRIu64 " bytes left", *n_tensors, bytes_left(c));
done:
    return st;
}

ht_status ht_gguf_open(ht_gguf** out, const char* path, ht_error* err)
{
    ht_status st        = HT_STATUS_OK;
    uint64_t  n_tensors = 0, n_pairs = 0;
    ht_gguf*  g         = calloc(1, sizeof *g);
    cursor*   c         = calloc(1, sizeof *c);
    HT_CHECK(g && c, NOMEM, "GGUF reader");
    g->meta    = ht_meta_create();
    g->by_name = ht_name_map_create();
    HT_CHECK(g->meta && g->by_name, NOMEM, "GGUF reader");
    HT_TRY(ht_file_open(&g->file, path, err));
    c->file = g->file;
    HT_TRY(take_preamble(c, g, &n_tensors, &n_pairs, err));
    for (uint64_t i = 0; i < n_pairs; i++) { HT_TRY(take_pair(c, g->meta, err)); }
    HT_TRY(ht_gguf_alignment(g->meta, &g->alignment, err));
    HT_TRY(take_tensors(c, g, n_tensors, err));
    g->data_offset = padded(c->offset, g->alignment);
    HT_TRY(check_offsets(g, err));
    *out = g;
    g    = NULL;
done:
    free(c);
    ht_gguf_close(g);
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    return st;
}

void ht_gguf_close(ht_gguf* gguf)
{
    if (!gguf) { return; }
    ht_file_close(gguf->file);
    ht_meta_free(gguf->meta);
    ht_name_map_free(gguf->by_name);
    free(gguf->tensors);
    free(gguf);
}

uint32_t              ht_gguf_version(const ht_gguf* gguf) { return gguf->version; }
const ht_file*        ht_gguf_file(const ht_gguf* gguf) { return gguf->file; }
const ht_meta*        ht_gguf_meta(const ht_gguf* gguf) { return gguf->meta; }
uint64_t              ht_gguf_data_offset(const ht_gguf* gguf) { return gguf->data_offset; }
int64_t               ht_gguf_n_tensors(const ht_gguf* gguf) { return gguf->n_tensors; }
const ht_tensor_info* ht_gguf_tensor_at(const ht_gguf* gguf, int64_t index) { return &gguf->tensors[index]; }

const ht_tensor_info* ht_gguf_find_tensor(const ht_gguf* gguf, const char* name)
{
    const int64_t index = ht_name_map_find(gguf->by_name, name, strlen(name));
    return index >= 0 ? &gguf->tensors[index] : NULL;
}

ht_status ht_gguf_read(const ht_gguf* gguf, const ht_tensor_info* tensor, uint64_t offset, void* buf, uint64_t n_bytes, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    if (offset > tensor->n_bytes || n_bytes > tensor->n_bytes - offset) {
        st = ht_fail(err, HT_STATUS_BOUNDS, "bytes %" PRIu64 " to %" PRIu64 " asked of a tensor of %" PRIu64, offset, offset + n_bytes, tensor->n_bytes);
    } else {
        st = ht_file_read_at(gguf->file, gguf->data_offset + tensor->offset_bytes + offset, buf, n_bytes, err);
    }
    if (st != HT_STATUS_OK) {
        ht_error_set_tensor(err, tensor->name);
        ht_error_set_file(err, ht_file_path(gguf->file));
    }
    return st;
}
