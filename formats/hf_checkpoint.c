#include "formats/hf_checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENDING ".safetensors"

/* --- a sorted list of names --------------------------------------------------------------------------------------------------------- */

typedef struct names {
    char** items;
    size_t n, capacity;
} names;

static void names_free(names* list)
{
    for (size_t i = 0; i < list->n; i++) { free(list->items[i]); }
    free(list->items);
    *list = (names){ 0 };
}

static ht_status names_add(names* list, const char* name, ht_error* err)
{
    if (list->n == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 16;
        char**       grown    = realloc(list->items, capacity * sizeof *grown);
        if (!grown) { return ht_fail(err, HT_STATUS_NOMEM, "file names"); }
        list->items    = grown;
        list->capacity = capacity;
    }
    char* copy = strdup(name);
    if (!copy) { return ht_fail(err, HT_STATUS_NOMEM, "file names"); }
    list->items[list->n++] = copy;
    return HT_STATUS_OK;
}

static int compare_names(const void* a, const void* b) { return strcmp(*(char* const*)a, *(char* const*)b); }

static void names_sort_unique(names* list)
{
    size_t n = 0;
    if (list->n == 0) { return; }
    qsort(list->items, list->n, sizeof *list->items, compare_names);
    for (size_t i = 0; i < list->n; i++) {
        if (n > 0 && strcmp(list->items[n - 1], list->items[i]) == 0) { free(list->items[i]); }
        else { list->items[n++] = list->items[i]; }
    }
    list->n = n;
}

static bool names_has(const names* list, const char* name)
{
    return list->n > 0 && bsearch(&name, list->items, list->n, sizeof *list->items, compare_names) != NULL;
}

/* "a, b, c and 4 more" */
static const char* names_join(const names* list, char* buf, size_t n_buf)
{
    size_t used = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < list->n; i++) {
        const size_t left = list->n - i;
        int n = i == 3 && left > 1 ? snprintf(buf + used, n_buf - used, " and %zu more", left)
                                   : snprintf(buf + used, n_buf - used, "%s%s", i ? ", " : "", list->items[i]);
        if (n < 0 || (size_t)n >= n_buf - used || (i == 3 && left > 1)) { break; }
        used += (size_t)n;
    }
    return buf;
}

/* --- which files -------------------------------------------------------------------------------------------------------------------- */

static bool ends_with(const char* text, const char* ending)
{
    const size_t n = strlen(text), n_ending = strlen(ending);
    return n >= n_ending && strcmp(text + n - n_ending, ending) == 0;
}

/* "model-00002-of-00003.safetensors": the length of "model", and the two numbers. False for other names. */
static bool parse_shard_name(const char* name, size_t* n_stem, unsigned* no, unsigned* count)
{
    enum { TAIL = sizeof "-00002-of-00003" - 1 };
    const size_t n = strlen(name);
    int          used = 0;
    if (!ends_with(name, ENDING) || n < TAIL + sizeof ENDING - 1) { return false; }
    *n_stem = n - (sizeof ENDING - 1) - TAIL;
    return sscanf(name + *n_stem, "-%5u-of-%5u%n", no, count, &used) == 2 && used == TAIL;
}

static ht_status list_folder(const char* folder, names* out, bool* has_pickle, ht_error* err)
{
    ht_status st  = HT_STATUS_OK;
    DIR*      dir = opendir(folder);
    HT_CHECK(dir, IO, "cannot open the folder: %s", strerror(errno));
    for (struct dirent* entry = readdir(dir); entry; entry = readdir(dir)) {
        if (ends_with(entry->d_name, ENDING)) { HT_TRY(names_add(out, entry->d_name, err)); }
        if (strncmp(entry->d_name, "pytorch_model", 13) == 0 && ends_with(entry->d_name, ".bin")) { *has_pickle = true; }
    }
    names_sort_unique(out);
done:
    if (dir) { closedir(dir); }
    return st;
}

/* All shards of the set that `name` belongs to; missing ones go to `missing`. */
static ht_status add_shard_set(const names* present, const char* name, names* out, names* missing, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    size_t    n_stem;
    unsigned  no, count;
    char      shard[512];
    if (!parse_shard_name(name, &n_stem, &no, &count)) { return names_add(out, name, err); }
    for (unsigned i = 1; i <= count; i++) {
        snprintf(shard, sizeof shard, "%.*s-%05u-of-%05u" ENDING, (int)n_stem, name, i, count);
        HT_TRY(names_add(names_has(present, shard) ? out : missing, shard, err));
    }
done:
    return st;
}

/* No index: one file or one complete set of shards, else it is unclear which weights are meant. */
static ht_status choose_without_index(const names* present, bool has_pickle, names* out, names* missing, ht_error* err)
{
    ht_status st       = HT_STATUS_OK;
    names     whole    = { 0 };
    char      list[2][200];
    size_t    n_others = 0;
    const char* first  = NULL;
    for (size_t i = 0; i < present->n && !first; i++) {
        if (strncmp(present->items[i], "model", 5) == 0) { first = present->items[i]; }
    }
    if (!first && present->n == 1) { first = present->items[0]; }
    HT_CHECK(first || !has_pickle, UNSUPPORTED, "pickled weights (pytorch_model*.bin) are not read; save the checkpoint as safetensors");
    HT_CHECK(first || present->n == 0, FORMAT, "no model*" ENDING " and no index, but %s: which file is meant?",
             names_join(present, list[0], sizeof list[0]));
    HT_CHECK(first, FORMAT, "no " ENDING " files in the folder");
    HT_TRY(add_shard_set(present, first, out, missing, err));
    names_sort_unique(out);
    for (size_t i = 0; i < present->n; i++) {
        if (strncmp(present->items[i], "model", 5) != 0 || names_has(out, present->items[i])) { continue; }
        HT_TRY(names_add(&whole, present->items[i], err));
        n_others++;
    }
    HT_CHECK(n_others == 0, FORMAT, "two sets of weights and no index that chooses: %s; and %s", names_join(out, list[0], sizeof list[0]),
             names_join(&whole, list[1], sizeof list[1]));
done:
    names_free(&whole);
    return st;
}

/* Inside the folder: relative, and no step up. */
static bool is_inside(const char* name)
{
    if (name[0] == '\0' || name[0] == '/' || strchr(name, '\\')) { return false; }
    for (const char* part = name; part;) {
        const char*  slash = strchr(part, '/');
        const size_t n     = slash ? (size_t)(slash - part) : strlen(part);
        if (n == 0 || (n == 2 && part[0] == '.' && part[1] == '.')) { return false; }
        part = slash ? slash + 1 : NULL;
    }
    return true;
}

static char* join_path(const char* folder, const char* name)
{
    const size_t n    = strlen(folder) + strlen(name) + 2;
    char*        path = malloc(n);
    if (path) { snprintf(path, n, "%s/%s", folder, name); }
    return path;
}

static bool file_exists(const char* folder, const char* name)
{
    char*       path   = join_path(folder, name);
    struct stat info;
    const bool  exists = path && stat(path, &info) == 0;
    free(path);
    return exists;
}

static ht_status choose_by_index(const ht_json* index, const char* folder, names* out, names* missing, ht_error* err)
{
    ht_status            st  = HT_STATUS_OK;
    const ht_json_value* map = NULL;
    names                all = { 0 };
    HT_TRY(ht_json_get_object(index, ht_json_root(index), "weight_map", true, &map, err));
    for (const ht_json_value* v = ht_json_first(map); v; v = ht_json_next(v)) {
        const char* name = ht_json_as_string(v);
        HT_CHECK(name, FORMAT, "weight_map.%s: expected a string, found %s", ht_json_key(v), ht_json_kind_name(v));
        HT_CHECK(is_inside(name), FORMAT, "weight_map.%s: \"%s\" is not a path inside the folder", ht_json_key(v), name);
        if (all.n > 0 && strcmp(all.items[all.n - 1], name) == 0) { continue; } /* runs of one file are usual */
        HT_TRY(names_add(&all, name, err));
    }
    names_sort_unique(&all);
    for (size_t i = 0; i < all.n; i++) { HT_TRY(names_add(file_exists(folder, all.items[i]) ? out : missing, all.items[i], err)); }
done:
    names_free(&all);
    return st;
}

/* --- the checkpoint ----------------------------------------------------------------------------------------------------------------- */

struct ht_hf_checkpoint {
    char*            folder;
    ht_json*         config;
    ht_safetensors** files;
    int64_t          n_files;
    ht_hf_tensor*    tensors; /* sorted by name */
    int64_t          n_tensors;
};

static const char* path_of(const ht_hf_tensor* t) { return ht_file_path(ht_safetensors_file(t->file)); }

static int compare_tensors(const void* a, const void* b)
{
    return strcmp(((const ht_hf_tensor*)a)->tensor->name, ((const ht_hf_tensor*)b)->tensor->name);
}

static ht_status open_files(ht_hf_checkpoint* c, const names* files, const ht_log* log, ht_error* err)
{
    ht_status st    = HT_STATUS_OK;
    size_t    total = 0, k = 0;
    char*     path  = NULL;
    c->files = calloc(files->n + 1, sizeof *c->files);
    HT_CHECK(c->files, NOMEM, "file table");
    for (size_t i = 0; i < files->n; i++) {
        free(path);
        path = join_path(c->folder, files->items[i]);
        HT_CHECK(path, NOMEM, "file name");
        HT_TRY(ht_safetensors_open(&c->files[i], path, log, err));
        c->n_files++;
        total += (size_t)ht_safetensors_n_tensors(c->files[i]);
    }
    c->tensors = calloc(total + 1, sizeof *c->tensors);
    HT_CHECK(c->tensors, NOMEM, "tensor table");
    for (int64_t f = 0; f < c->n_files; f++) {
        for (int64_t i = 0; i < ht_safetensors_n_tensors(c->files[f]); i++) {
            c->tensors[k++] = (ht_hf_tensor){ ht_safetensors_tensor_at(c->files[f], i), c->files[f] };
        }
    }
    c->n_tensors = (int64_t)total;
    HT_CHECK(total > 0, FORMAT, "no tensors in the checkpoint");
    qsort(c->tensors, total, sizeof *c->tensors, compare_tensors);
    for (size_t i = 1; i < total; i++) {
        HT_CHECK(compare_tensors(&c->tensors[i - 1], &c->tensors[i]) != 0, FORMAT, "tensor %s is in two files: %s and %s", c->tensors[i].tensor->name,
                 path_of(&c->tensors[i - 1]), path_of(&c->tensors[i]));
    }
done:
    free(path);
    return st;
}

/* Every name of the index in the file it names, and no other name in those files. */
static ht_status check_index(const ht_hf_checkpoint* c, const ht_json* index, ht_error* err)
{
    ht_status            st       = HT_STATUS_OK;
    const ht_json_value* map      = ht_json_member(ht_json_root(index), "weight_map");
    const size_t         n_folder = strlen(c->folder) + 1;
    int64_t              n_listed = 0;
    bool*                listed   = calloc((size_t)c->n_tensors + 1, sizeof *listed);
    HT_CHECK(listed, NOMEM, "index check");
    for (const ht_json_value* v = ht_json_first(map); v; v = ht_json_next(v), n_listed++) {
        const ht_hf_tensor* t = ht_hf_checkpoint_find(c, ht_json_key(v));
        if (!t || strcmp(path_of(t) + n_folder, ht_json_as_string(v)) != 0) {
            HT_CHECK(0, FORMAT, "incomplete file %s: the index says that it holds %s, it does not", ht_json_as_string(v), ht_json_key(v));
        }
        listed[t - c->tensors] = true;
    }
    for (int64_t i = 0; i < c->n_tensors; i++) {
        HT_CHECK(listed[i], FORMAT, "tensor %s of %s is not in the index", c->tensors[i].tensor->name, path_of(&c->tensors[i]) + n_folder);
    }
done:
    free(listed);
    return st;
}

static ht_status open_folder(ht_hf_checkpoint* c, const ht_log* log, ht_error* err)
{
    static const char index_name[] = "model.safetensors.index.json";
    ht_status st      = HT_STATUS_OK;
    names     present = { 0 }, files = { 0 }, missing = { 0 };
    ht_json*  index   = NULL;
    char*     path    = join_path(c->folder, index_name);
    char      list[300];
    bool      has_pickle = false;
    HT_CHECK(path, NOMEM, "file name");
    HT_TRY(list_folder(c->folder, &present, &has_pickle, err));
    if (file_exists(c->folder, index_name)) {
        HT_TRY(ht_json_read(&index, path, HT_HF_MAX_JSON_BYTES, err));
        st = choose_by_index(index, c->folder, &files, &missing, err);
        if (st != HT_STATUS_OK) {
            ht_error_set_file(err, path);
            goto done;
        }
    } else {
        HT_TRY(choose_without_index(&present, has_pickle, &files, &missing, err));
    }
    HT_CHECK(missing.n == 0, FORMAT, "missing file%s %s: the checkpoint has %zu files, %zu of them are here", missing.n > 1 ? "s" : "",
             names_join(&missing, list, sizeof list), files.n + missing.n, files.n);
    for (size_t i = 0; i < present.n; i++) {
        if (!names_has(&files, present.items[i])) { ht_log_warn(log, "%s/%s is not part of the checkpoint; ignored", c->folder, present.items[i]); }
    }
    HT_TRY(open_files(c, &files, log, err));
    if (index) { HT_TRY(check_index(c, index, err)); }
done:
    ht_json_free(index);
    free(path);
    names_free(&present);
    names_free(&files);
    names_free(&missing);
    return st;
}

static ht_status open_single(ht_hf_checkpoint* c, const char* name, const ht_log* log, ht_error* err)
{
    ht_status st    = HT_STATUS_OK;
    names     files = { 0 };
    size_t    n_stem;
    unsigned  no, count = 1;
    HT_CHECK(!parse_shard_name(name, &n_stem, &no, &count) || count == 1, ARG, "this is shard %u of %u; give the folder", no, count);
    HT_TRY(names_add(&files, name, err));
    HT_TRY(open_files(c, &files, log, err));
done:
    names_free(&files);
    return st;
}

ht_status ht_hf_checkpoint_open(ht_hf_checkpoint** out, const char* path, const ht_log* log, ht_error* err)
{
    ht_status         st     = HT_STATUS_OK;
    char*             config = NULL;
    const char*       name   = NULL; /* of the single file */
    struct stat       info;
    ht_hf_checkpoint* c      = calloc(1, sizeof *c);
    HT_CHECK(c, NOMEM, "checkpoint");
    HT_CHECK(stat(path, &info) == 0, IO, "cannot open: %s", strerror(errno));
    c->folder = strdup(path);
    HT_CHECK(c->folder, NOMEM, "folder name");
    if (!S_ISDIR(info.st_mode)) {
        char* slash = strrchr(c->folder, '/');
        name = slash ? path + (slash - c->folder) + 1 : path;
        if (slash) { slash[slash == c->folder] = '\0'; } /* "/x" lies in "/" */
        else { strcpy(c->folder, "."); }                 /* a name has at least one byte */
    }
    for (size_t n = strlen(c->folder); n > 1 && c->folder[n - 1] == '/'; n--) { c->folder[n - 1] = '\0'; }
    config = join_path(c->folder, "config.json");
    HT_CHECK(config, NOMEM, "file name");
    HT_TRY(ht_json_read(&c->config, config, HT_HF_MAX_JSON_BYTES, err));
    HT_TRY(ht_json_lift(c->config, "text_config", err));
    st = name ? open_single(c, name, log, err) : open_folder(c, log, err);
    if (st != HT_STATUS_OK) { goto done; }
    *out = c;
    c    = NULL;
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    free(config);
    ht_hf_checkpoint_close(c);
    return st;
}

void ht_hf_checkpoint_close(ht_hf_checkpoint* c)
{
    if (!c) { return; }
    for (int64_t i = 0; i < c->n_files; i++) { ht_safetensors_close(c->files[i]); }
    ht_json_free(c->config);
    free(c->files);
    free(c->tensors);
    free(c->folder);
    free(c);
}

const char*           ht_hf_checkpoint_folder(const ht_hf_checkpoint* c) { return c->folder; }
const ht_json*        ht_hf_checkpoint_config(const ht_hf_checkpoint* c) { return c->config; }
int64_t               ht_hf_checkpoint_n_files(const ht_hf_checkpoint* c) { return c->n_files; }
const ht_safetensors* ht_hf_checkpoint_file_at(const ht_hf_checkpoint* c, int64_t index) { return c->files[index]; }
int64_t               ht_hf_checkpoint_n_tensors(const ht_hf_checkpoint* c) { return c->n_tensors; }
const ht_hf_tensor*   ht_hf_checkpoint_tensor_at(const ht_hf_checkpoint* c, int64_t index) { return &c->tensors[index]; }

const ht_hf_tensor* ht_hf_checkpoint_find(const ht_hf_checkpoint* c, const char* name)
{
    const ht_st_tensor key_tensor = { .name = name };
    const ht_hf_tensor key        = { &key_tensor, NULL };
    return bsearch(&key, c->tensors, (size_t)c->n_tensors, sizeof *c->tensors, compare_tensors);
}
