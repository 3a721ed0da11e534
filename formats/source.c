#include "formats/source_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/half.h"

/* --- opening ------------------------------------------------------------------------------------------------------------------------ */

static bool ends_with(const char* text, const char* ending)
{
    const size_t n = strlen(text), n_ending = strlen(ending);
    return n >= n_ending && strcmp(text + n - n_ending, ending) == 0;
}

static bool is_folder(const char* path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* "models/tiny/" -> "tiny", "x/tiny.gguf" -> "tiny", "." -> the folder's real name; malloc'd. A lone model.safetensors takes its folder's name. */
static char* name_of(const char* path)
{
    char* full = realpath(path, NULL);
    char* text = full ? full : strdup(path);
    char* name = NULL;
    if (!text) { return NULL; }
    char* last = strrchr(text, '/');
    if (last && strcmp(last, "/model.safetensors") == 0 && last != text) {
        *last = '\0';
        last  = strrchr(text, '/');
    }
    last = last ? last + 1 : text;
    for (const char* ending = ".safetensors"; ending; ending = strcmp(ending, ".gguf") == 0 ? NULL : ".gguf") {
        if (ends_with(last, ending) && strlen(last) > strlen(ending)) { last[strlen(last) - strlen(ending)] = '\0'; }
    }
    name = strdup(*last ? last : "model");
    free(text);
    return name;
}

ht_status ht_source_open(ht_source** out, const char* path, const ht_source_options* options, const ht_ctx* ctx, ht_error* err)
{
    static const ht_source_options defaults = { false, NULL };
    ht_status     st     = HT_STATUS_OK;
    const ht_log* log    = ctx ? &ctx->log : NULL;
    ht_source*    source = calloc(1, sizeof *source);
    HT_CHECK(source, NOMEM, "source");
    if (!options) { options = &defaults; }
    source->path            = strdup(path);
    source->name            = name_of(path);
    source->by_name         = ht_name_map_create();
    source->allow_nonfinite = options->allow_nonfinite;
    HT_CHECK(source->path && source->name && source->by_name, NOMEM, "source");
    if (is_folder(path) || ends_with(path, ".safetensors")) { HT_TRY(ht_source_hf_open(source, options, log, err)); }
    else { HT_TRY(ht_source_gguf_open(source, err)); }
    for (int64_t i = 0; i < source->n_tensors; i++) { /* the table does not move any more: the map keeps its names */
        const char* name = source->tensors[i].info.name;
        HT_CHECK(ht_name_map_add(source->by_name, name, strlen(name), i) != HT_NAME_MAP_NOMEM, NOMEM, "tensor names");
    }
    *out   = source;
    source = NULL;
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    ht_source_close(source);
    return st;
}

void ht_source_close(ht_source* source)
{
    if (!source) { return; }
    if (source->ops) { source->ops->close(source->self); }
    ht_name_map_free(source->by_name);
    ht_meta_free(source->meta);
    free(source->tensors);
    free(source->path);
    free(source->name);
    free(source);
}

ht_status ht_source_add_tensor(ht_source* source, const ht_tensor_info* info, const char* origin, const char* transform, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    if (source->n_tensors == source->capacity) {
        const int64_t     capacity = source->capacity ? 2 * source->capacity : 64;
        ht_source_tensor* grown    = realloc(source->tensors, (size_t)capacity * sizeof *grown);
        HT_CHECK(grown, NOMEM, "table of %" PRId64 " tensors", capacity);
        source->tensors  = grown;
        source->capacity = capacity;
    }
    ht_source_tensor* t = &source->tensors[source->n_tensors];
    *t = (ht_source_tensor){ *info, origin, transform };
    t->info.offset_bytes = 0;
    HT_TRY(ht_tensor_info_size(&t->info, err));
    source->n_tensors++;
done:
    return st;
}

/* --- facts -------------------------------------------------------------------------------------------------------------------------- */

const char*    ht_source_path(const ht_source* source) { return source->path; }
const char*    ht_source_name(const ht_source* source) { return source->name; }
const char*    ht_source_kind(const ht_source* source) { return source->ops->kind; }
const ht_meta* ht_source_meta(const ht_source* source) { return source->meta; }

bool ht_source_is_quantized(const ht_source* source)
{
    for (int64_t i = 0; i < source->n_tensors; i++) {
        if (ht_type_get(source->tensors[i].info.type)->is_quantized) { return true; }
    }
    return false;
}

int64_t                 ht_source_n_tensors(const ht_source* source) { return source->n_tensors; }
const ht_source_tensor* ht_source_tensor_at(const ht_source* source, int64_t index) { return &source->tensors[index]; }

const ht_source_tensor* ht_source_find_tensor(const ht_source* source, const char* name)
{
    const int64_t index = ht_name_map_find(source->by_name, name, strlen(name));
    return index < 0 ? NULL : &source->tensors[index];
}

/* --- rows --------------------------------------------------------------------------------------------------------------------------- */

static ht_status check_range(const ht_source_tensor* tensor, int64_t row, int64_t n_rows, ht_error* err)
{
    const int64_t total = ht_tensor_n_rows(&tensor->info);
    if (row >= 0 && n_rows >= 0 && row <= total && n_rows <= total - row) { return HT_STATUS_OK; }
    return ht_fail(err, HT_STATUS_BOUNDS, "rows %" PRId64 " + %" PRId64 " of %" PRId64, row, n_rows, total);
}

static ht_status fail_nonfinite(const ht_source_tensor* tensor, int64_t row, int64_t elem, double value, ht_error* err)
{
    const int64_t n_cols = tensor->info.ne[0];
    return ht_fail(err, HT_STATUS_NUMERIC, "row %" PRId64 ", column %" PRId64 ": the value is %f (source tensor %s)", row + elem / n_cols,
                   elem % n_cols, value, tensor->origin);
}

/* Inf and NaN have all exponent bits set. No early exit: the loop is vectorised, and the answer is nearly always yes. */
static bool all_finite(const float* x, int64_t n)
{
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++) { bad |= (ht_f32_to_bits(x[i]) & 0x7F800000u) == 0x7F800000u; }
    return bad == 0;
}

ht_status ht_source_read_rows_f32(const ht_source* source, const ht_source_tensor* tensor, int64_t row, int64_t n_rows, float* out, ht_error* err)
{
    ht_status     st      = HT_STATUS_OK;
    const int64_t n_elems = n_rows * tensor->info.ne[0];
    HT_TRY(check_range(tensor, row, n_rows, err));
    HT_TRY(source->ops->read_rows_f32(source->self, tensor - source->tensors, row, n_rows, out, err));
    if (source->allow_nonfinite || all_finite(out, n_elems)) { goto done; }
    for (int64_t i = 0; i < n_elems; i++) {
        if (!isfinite(out[i])) {
            st = fail_nonfinite(tensor, row, i, (double)out[i], err);
            break;
        }
    }
done:
    if (st != HT_STATUS_OK) { ht_error_set_tensor(err, tensor->info.name), ht_error_set_file(err, source->path); }
    return st;
}

bool ht_source_has_raw(const ht_source* source, const ht_source_tensor* tensor)
{
    return source->ops->has_raw(source->self, tensor - source->tensors);
}

/* The first value whose exponent bits are all set; n_elems when there is none. Only for the float types: blocks are `verify --deep`'s part. */
static int64_t find_nonfinite_raw(ht_type type, const void* bytes, int64_t n_elems, double* value)
{
    if (type == HT_TYPE_f32) {
        const float* x = bytes;
        for (int64_t i = 0; i < n_elems; i++) {
            if (!isfinite(x[i])) { *value = (double)x[i]; return i; }
        }
    } else if (type == HT_TYPE_f16 || type == HT_TYPE_bf16) {
        const uint16_t* x    = bytes;
        const uint16_t  mask = type == HT_TYPE_f16 ? 0x7C00 : 0x7F80;
        for (int64_t i = 0; i < n_elems; i++) {
            if ((x[i] & mask) == mask) { *value = (double)(type == HT_TYPE_f16 ? ht_f16_to_f32(x[i]) : ht_bf16_to_f32(x[i])); return i; }
        }
    }
    return n_elems;
}

ht_status ht_source_read_rows_raw(const ht_source* source, const ht_source_tensor* tensor, int64_t row, int64_t n_rows, void* out, ht_error* err)
{
    ht_status     st      = HT_STATUS_OK;
    const int64_t n_elems = n_rows * tensor->info.ne[0];
    double        value   = 0.0;
    HT_TRY(check_range(tensor, row, n_rows, err));
    HT_CHECK(ht_source_has_raw(source, tensor), ARG, "the tensor has no bytes of its type, only values");
    HT_TRY(source->ops->read_rows_raw(source->self, tensor - source->tensors, row, n_rows, out, err));
    if (source->allow_nonfinite) { goto done; }
    const int64_t bad = find_nonfinite_raw(tensor->info.type, out, n_elems, &value);
    if (bad < n_elems) { st = fail_nonfinite(tensor, row, bad, value, err); }
done:
    if (st != HT_STATUS_OK) { ht_error_set_tensor(err, tensor->info.name), ht_error_set_file(err, source->path); }
    return st;
}

/* --- identity ----------------------------------------------------------------------------------------------------------------------- */

static int compare_lines(const void* a, const void* b) { return strcmp(*(char* const*)a, *(char* const*)b); }

/* "name size sha256-of-header\n", malloc'd. */
static ht_status file_line(char** out, const ht_file* file, uint64_t n_header, ht_error* err)
{
    enum { ROOM = 128 };
    ht_status   st     = HT_STATUS_OK;
    const char* path   = ht_file_path(file);
    const char* slash  = strrchr(path, '/');
    const char* name   = slash ? slash + 1 : path;
    char        hash[65];
    char*       line   = malloc(strlen(name) + ROOM);
    void*       header = malloc((size_t)n_header + 1);
    HT_CHECK(line && header, NOMEM, "header of %" PRIu64 " bytes", n_header);
    HT_TRY(ht_file_read_at(file, 0, header, (size_t)n_header, err));
    HT_TRY(ht_sha256_hex(hash, header, (size_t)n_header, err));
    snprintf(line, strlen(name) + ROOM, "%s %" PRIu64 " %s\n", name, ht_file_size(file), hash);
    *out = line;
    line = NULL;
done:
    free(line);
    free(header);
    return st;
}

ht_status ht_source_sha256(const ht_source* source, char out[65], ht_error* err)
{
    ht_status      st    = HT_STATUS_OK;
    const ht_file* file  = NULL;
    uint64_t       n_header = 0;
    size_t         n = 0, n_text = 0, used = 0;
    char**         lines = NULL;
    char*          text  = NULL;
    while (source->ops->file_at(source->self, (int64_t)n, &file, &n_header)) { n++; }
    lines = calloc(n + 1, sizeof *lines);
    HT_CHECK(lines, NOMEM, "file list");
    for (size_t i = 0; i < n; i++) {
        source->ops->file_at(source->self, (int64_t)i, &file, &n_header);
        HT_TRY(file_line(&lines[i], file, n_header, err));
        n_text += strlen(lines[i]);
    }
    qsort(lines, n, sizeof *lines, compare_lines);
    text = malloc(n_text + 1);
    HT_CHECK(text, NOMEM, "file list");
    for (size_t i = 0; i < n; i++) {
        memcpy(text + used, lines[i], strlen(lines[i]));
        used += strlen(lines[i]);
    }
    HT_TRY(ht_sha256_hex(out, text, n_text, err));
done:
    for (size_t i = 0; lines && i < n; i++) { free(lines[i]); }
    free(lines);
    free(text);
    return st;
}
