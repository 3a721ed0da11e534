#include "formats/gguf_split.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/name_map.h"

/* Length of "-00001-of-00003.gguf". */
enum { ENDING_BYTES = 20 };

/* What one part says about itself; count 1 without split keys. */
typedef struct split_keys {
    int64_t no, count, n_tensors;
} split_keys;

static ht_status read_keys(const ht_gguf* part, split_keys* keys, ht_error* err)
{
    const ht_meta* meta = ht_gguf_meta(part);
    ht_status      st   = HT_STATUS_OK;
    *keys = (split_keys){ 0, 1, ht_gguf_n_tensors(part) };
    HT_TRY(ht_meta_get_i64(meta, "split.count", false, &keys->count, err));
    const bool is_split = keys->count != 1;
    HT_CHECK(keys->count >= 1 && keys->count <= HT_GGUF_MAX_PARTS, FORMAT, "split.count: expected 1 to %d, found %" PRId64, HT_GGUF_MAX_PARTS,
             keys->count);
    HT_TRY(ht_meta_get_i64(meta, "split.no", is_split, &keys->no, err));
    HT_TRY(ht_meta_get_i64(meta, "split.tensors.count", is_split, &keys->n_tensors, err));
    HT_CHECK(keys->no >= 0 && keys->no < keys->count, FORMAT, "split.no: expected 0 to %" PRId64 ", found %" PRId64, keys->count - 1, keys->no);
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, ht_file_path(ht_gguf_file(part))); }
    return st;
}

/* The number of parts that the file name tells of, or 0 when it does not end like a part's. */
static int count_in_name(const char* path)
{
    const size_t n  = strlen(path);
    int          no = 0, count = 0;
    char         again[ENDING_BYTES + 1];
    if (n < ENDING_BYTES || sscanf(path + n - ENDING_BYTES, "-%5d-of-%5d.gguf", &no, &count) != 2 || no < 0 || count < 0) { return 0; }
    snprintf(again, sizeof again, "-%05d-of-%05d.gguf", no % 100000, count % 100000);
    return strcmp(again, path + n - ENDING_BYTES) == 0 ? count : 0;
}

static ht_status expect(const char* key, int64_t expected, int64_t found, ht_error* err)
{
    if (expected == found) { return HT_STATUS_OK; }
    return ht_fail(err, HT_STATUS_FORMAT, "%s: expected %" PRId64 ", found %" PRId64, key, expected, found);
}

/* Part `no` of the set that `first` belongs to. */
static ht_status open_part(ht_gguf** out, const char* path, int no, const split_keys* set, ht_error* err)
{
    ht_status    st     = HT_STATUS_OK;
    const size_t n_path = strlen(path);
    ht_gguf*     part   = NULL;
    split_keys   keys   = { 0 };
    char*        name   = malloc(n_path + 1);
    HT_CHECK(name, NOMEM, "file name of part %d", no + 1);
    memcpy(name, path, n_path - ENDING_BYTES);
    snprintf(name + n_path - ENDING_BYTES, ENDING_BYTES + 1, "-%05d-of-%05d.gguf", (no + 1) % 100000, (int)set->count);
    HT_CHECK(access(name, F_OK) == 0, FORMAT, "part %d of %" PRId64 " is missing", no + 1, set->count);
    HT_TRY(ht_gguf_open(&part, name, err));
    HT_TRY(read_keys(part, &keys, err));
    HT_TRY(expect("split.count", set->count, keys.count, err));
    HT_TRY(expect("split.no", no, keys.no, err));
    HT_TRY(expect("split.tensors.count", set->n_tensors, keys.n_tensors, err));
    *out = part;
    part = NULL;
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, name ? name : path); }
    ht_gguf_close(part);
    free(name);
    return st;
}

/* Keys that a later part repeats must say what the first says: parts of different models do not mix. */
static ht_status check_same_metadata(const ht_gguf* first, const ht_gguf* part, ht_error* err)
{
    const ht_meta* a = ht_gguf_meta(first);
    const ht_meta* b = ht_gguf_meta(part);
    for (int64_t i = 0; i < ht_meta_count(b); i++) {
        const ht_meta_kv* kv    = ht_meta_at(b, i);
        const ht_meta_kv* other = ht_meta_find(a, kv->key);
        if (!other || ht_gguf_is_split_key(kv->key) || ht_meta_kv_equal(kv, other)) { continue; }
        return ht_fail(err, HT_STATUS_FORMAT, "%s differs from that of %s: parts of different models", kv->key, ht_file_path(ht_gguf_file(first)));
    }
    return HT_STATUS_OK;
}

/* No name in two parts, and as many tensors as promised. */
static ht_status check_tensors(ht_gguf* const* parts, int n_parts, int64_t n_promised, ht_error* err)
{
    ht_status    st   = HT_STATUS_OK;
    int64_t      n    = 0;
    int          p    = 0;
    ht_name_map* seen = ht_name_map_create(); /* name -> part */
    HT_CHECK(seen, NOMEM, "names of tensors");
    for (p = 0; p < n_parts; p++) {
        for (int64_t i = 0; i < ht_gguf_n_tensors(parts[p]); i++, n++) {
            const char*   name  = ht_gguf_tensor_at(parts[p], i)->name;
            const int64_t owner = ht_name_map_add(seen, name, strlen(name), p);
            HT_CHECK(owner >= 0, NOMEM, "names of tensors");
            if (owner != p) {
                st = ht_fail(err, HT_STATUS_FORMAT, "this tensor is also in %s", ht_file_path(ht_gguf_file(parts[owner])));
                ht_error_set_tensor(err, name);
                goto done;
            }
        }
    }
    p = 0; /* the count is a key of every part: the first is named */
    HT_TRY(expect("split.tensors.count", n, n_promised, err));
done:
    if (st != HT_STATUS_OK && p < n_parts) { ht_error_set_file(err, ht_file_path(ht_gguf_file(parts[p]))); }
    ht_name_map_free(seen);
    return st;
}

/* parts[set->no] is open already. When its split.no is not that of its name, the file is met again under its right number, and refused there. */
static ht_status open_set(ht_gguf** parts, const char* path, const split_keys* set, ht_error* err)
{
    ht_status st    = HT_STATUS_OK;
    const int count = count_in_name(path);
    HT_CHECK(count > 0, FORMAT, "split.count is %" PRId64 ", but the file name does not end in -%05" PRId64 "-of-%05" PRId64 ".gguf",
             set->count, set->no + 1, set->count);
    HT_TRY(expect("split.count", count, set->count, err));
    for (int i = 0; i < set->count; i++) {
        if (!parts[i]) { HT_TRY(open_part(&parts[i], path, i, set, err)); }
    }
    for (int i = 1; i < set->count; i++) {
        st = check_same_metadata(parts[0], parts[i], err);
        if (st != HT_STATUS_OK) {
            ht_error_set_file(err, ht_file_path(ht_gguf_file(parts[i])));
            goto done;
        }
    }
done:
    return st;
}

ht_status ht_gguf_split_open(ht_gguf*** out_parts, int* out_n_parts, const char* path, ht_error* err)
{
    ht_status  st    = HT_STATUS_OK;
    ht_gguf*   given = NULL;
    ht_gguf**  parts = NULL;
    split_keys set   = { 0, 1, 0 };
    HT_TRY(ht_gguf_open(&given, path, err));
    HT_TRY(read_keys(given, &set, err));
    parts = calloc((size_t)set.count, sizeof *parts);
    HT_CHECK(parts, NOMEM, "%" PRId64 " parts", set.count);
    parts[set.no] = given;
    given         = NULL;
    if (set.count > 1) { HT_TRY(open_set(parts, path, &set, err)); }
    HT_TRY(check_tensors(parts, (int)set.count, set.n_tensors, err));
    *out_parts   = parts;
    *out_n_parts = (int)set.count;
    parts        = NULL;
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    ht_gguf_close(given);
    ht_gguf_split_close(parts, (int)set.count);
    return st;
}

void ht_gguf_split_close(ht_gguf** parts, int n_parts)
{
    if (!parts) { return; }
    for (int i = n_parts - 1; i >= 0; i--) { ht_gguf_close(parts[i]); }
    free(parts);
}

const ht_tensor_info* ht_gguf_split_find(ht_gguf* const* parts, int n_parts, const char* name, const ht_gguf** out_part)
{
    for (int i = 0; i < n_parts; i++) {
        const ht_tensor_info* info = ht_gguf_find_tensor(parts[i], name);
        if (!info) { continue; }
        *out_part = parts[i];
        return info;
    }
    return NULL;
}

bool ht_gguf_is_split_key(const char* key)
{
    return strcmp(key, "split.no") == 0 || strcmp(key, "split.count") == 0 || strcmp(key, "split.tensors.count") == 0;
}
