/* halftone inspect: what is in a file. Headers only, so a model of any size answers at once. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/gguf_split.h"
#include "formats/source.h"
#include "quant/recipe.h"
#include "tools/cmd.h"

/* A GGUF (all parts of it) or a Hugging Face checkpoint seen as one, ready to print. */
typedef struct row {
    const ht_tensor_info* info;
    int                   part;          /* GGUF: index of the file                                   */
    uint64_t              offset_bytes;  /* GGUF: from the start of that file                         */
    const char*           origin;        /* checkpoint: the tensor's name there; NULL for GGUF        */
} row;

typedef struct view {
    ht_gguf**      parts; /* GGUF, else NULL       */
    int            n_parts;
    ht_source*     source; /* checkpoint, else NULL */
    const ht_meta* meta;
    row*           rows;
    int64_t        n_rows;
    double         n_elems, n_tensor_bytes;
    uint64_t       n_file_bytes;
} view;

typedef struct type_total { int64_t n_tensors; double n_elems, n_bytes; } type_total;

/* --- gathering -------------------------------------------------------------------------------------------------------------- */

static bool is_checkpoint(const char* path)
{
    static const char ending[] = ".safetensors";
    struct stat       info;
    const size_t      n = strlen(path);
    return (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) || (n >= sizeof ending - 1 && strcmp(path + n - (sizeof ending - 1), ending) == 0);
}

static ht_status gather_gguf(view* v, const char* path, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    HT_TRY(ht_gguf_split_open(&v->parts, &v->n_parts, path, err));
    v->meta = ht_gguf_meta(v->parts[0]);
    for (int p = 0; p < v->n_parts; p++) { v->n_rows += ht_gguf_n_tensors(v->parts[p]); }
    v->rows = calloc((size_t)v->n_rows + 1, sizeof *v->rows);
    HT_CHECK(v->rows, NOMEM, "%" PRId64 " tensors", v->n_rows);
    row* next = v->rows;
    for (int p = 0; p < v->n_parts; p++) {
        const uint64_t data = ht_gguf_data_offset(v->parts[p]);
        v->n_file_bytes += ht_file_size(ht_gguf_file(v->parts[p]));
        for (int64_t i = 0; i < ht_gguf_n_tensors(v->parts[p]); i++) {
            const ht_tensor_info* info = ht_gguf_tensor_at(v->parts[p], i);
            *next++ = (row){ info, p, data + info->offset_bytes, NULL };
        }
    }
done:
    return st;
}

static ht_status gather_checkpoint(view* v, const char* path, const ht_ctx* ctx, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    HT_TRY(ht_source_open(&v->source, path, NULL, ctx, err));
    v->meta   = ht_source_meta(v->source);
    v->n_rows = ht_source_n_tensors(v->source);
    v->rows   = calloc((size_t)v->n_rows + 1, sizeof *v->rows);
    HT_CHECK(v->rows, NOMEM, "%" PRId64 " tensors", v->n_rows);
    for (int64_t i = 0; i < v->n_rows; i++) {
        const ht_source_tensor* t = ht_source_tensor_at(v->source, i);
        v->rows[i] = (row){ &t->info, 0, 0, t->origin };
    }
done:
    return st;
}

static double bits_per_weight(double n_bytes, double n_elems) { return n_elems > 0 ? 8.0 * n_bytes / n_elems : 0.0; }

/* Totals of each type, by type id; and of all. */
static void add_up(view* v, type_total totals[HT_TYPE_END])
{
    for (int64_t i = 0; i < v->n_rows; i++) {
        const ht_tensor_info* t     = v->rows[i].info;
        type_total*           total = &totals[t->type];
        total->n_tensors++;
        total->n_elems += (double)ht_tensor_n_elems(t);
        total->n_bytes += (double)t->n_bytes;
        v->n_elems += (double)ht_tensor_n_elems(t);
        v->n_tensor_bytes += (double)t->n_bytes;
    }
}

/* "Q4_K_M" for general.file_type 15; NULL when the key is absent or the number is nobody's. */
static const char* file_type_name(const ht_meta* meta, uint32_t* out_id)
{
    ht_error ignored = HT_ERROR_INIT;
    *out_id          = UINT32_MAX;
    if (ht_meta_get_u32(meta, "general.file_type", true, out_id, &ignored) != HT_STATUS_OK) { return NULL; }
    for (int i = 0; ht_recipe_at(i); i++) {
        if (ht_recipe_file_type(ht_recipe_at(i)) == *out_id) { return ht_recipe_name(ht_recipe_at(i)); }
    }
    return NULL;
}

static const char* text_of(const ht_meta* meta, const char* key)
{
    const char* text    = NULL;
    ht_error    ignored = HT_ERROR_INIT;
    return ht_meta_get_string(meta, key, true, &text, &ignored) == HT_STATUS_OK ? text : NULL;
}

/* --- values ----------------------------------------------------------------------------------------------------------------- */

enum { SHORT_VALUES = 8, SHORT_TEXT_BYTES = 100 };

/* Value `i` as text, for numbers and bools. */
static const char* number_text(const ht_meta_kv* kv, uint64_t i, char buf[48])
{
    const unsigned char* p = (const unsigned char*)kv->data + i * ht_meta_type_bytes(kv->type);
    union { uint8_t u8; int8_t i8; uint16_t u16; int16_t i16; uint32_t u32; int32_t i32; float f32; uint64_t u64; int64_t i64; double f64; } v = { 0 };
    memcpy(&v, p, ht_meta_type_bytes(kv->type));
    switch (kv->type) {
    case HT_META_TYPE_U8: snprintf(buf, 48, "%u", v.u8); break;
    case HT_META_TYPE_I8: snprintf(buf, 48, "%d", v.i8); break;
    case HT_META_TYPE_U16: snprintf(buf, 48, "%u", v.u16); break;
    case HT_META_TYPE_I16: snprintf(buf, 48, "%d", v.i16); break;
    case HT_META_TYPE_U32: snprintf(buf, 48, "%" PRIu32, v.u32); break;
    case HT_META_TYPE_I32: snprintf(buf, 48, "%" PRId32, v.i32); break;
    case HT_META_TYPE_F32: snprintf(buf, 48, "%.9g", (double)v.f32); break;
    case HT_META_TYPE_BOOL: snprintf(buf, 48, "%s", v.u8 ? "true" : "false"); break;
    case HT_META_TYPE_U64: snprintf(buf, 48, "%" PRIu64, v.u64); break;
    case HT_META_TYPE_I64: snprintf(buf, 48, "%" PRId64, v.i64); break;
    case HT_META_TYPE_F64: snprintf(buf, 48, "%.17g", v.f64); break;
    default: buf[0] = '\0'; break;
    }
    return buf;
}

/* A string on one line; NULs and control bytes as \xNN; cut at SHORT_TEXT_BYTES unless `full`. */
static void print_text_value(const ht_string* s, bool full)
{
    const size_t n = full || s->n_bytes <= SHORT_TEXT_BYTES ? s->n_bytes : SHORT_TEXT_BYTES;
    char         line[4 * SHORT_TEXT_BYTES + 1], piece[SHORT_TEXT_BYTES + 1];
    putchar('"');
    for (size_t at = 0; at < n;) {
        size_t take = n - at < SHORT_TEXT_BYTES ? n - at : SHORT_TEXT_BYTES;
        while (take > 1 && at + take < s->n_bytes && ((unsigned char)s->data[at + take] & 0xC0) == 0x80) { take--; } /* not inside a character */
        memcpy(piece, s->data + at, take);
        piece[take] = '\0';
        if (piece[0] == '\0') {
            printf("\\x00");
            at++;
            continue;
        }
        take = strlen(piece); /* up to a NUL inside */
        printf("%s", ht_printable(piece, line, sizeof line));
        at += take;
    }
    printf(n < s->n_bytes ? "…\"" : "\"");
}

static void print_value(const ht_meta_kv* kv, bool full)
{
    char           number[48];
    const uint64_t n = full || kv->n_values <= SHORT_VALUES ? kv->n_values : SHORT_VALUES;
    for (uint64_t i = 0; i < n; i++) {
        if (i > 0) { printf(", "); }
        if (kv->strings) { print_text_value(&kv->strings[i], full); }
        else { printf("%s", number_text(kv, i, number)); }
    }
    if (n < kv->n_values) { printf(", …"); }
}

/* Numbers that a double cannot hold are given as text. */
static void add_json_value(cJSON* list, const ht_meta_kv* kv, uint64_t i)
{
    char number[48];
    if (kv->strings) {
        cJSON* holder = cJSON_CreateObject();
        ht_json_add_text(holder, "v", kv->strings[i].data);
        cJSON_AddItemToArray(list, cJSON_DetachItemFromObject(holder, "v"));
        cJSON_Delete(holder);
        return;
    }
    number_text(kv, i, number);
    if (kv->type == HT_META_TYPE_BOOL) {
        cJSON_AddItemToArray(list, cJSON_CreateBool(number[0] == 't'));
        return;
    }
    const bool is_float = kv->type == HT_META_TYPE_F32 || kv->type == HT_META_TYPE_F64;
    const bool is_plain = is_float ? strpbrk(number, "nN") == NULL : strlen(number) <= 15; /* inf and nan hold an n */
    cJSON_AddItemToArray(list, is_plain ? cJSON_CreateRaw(number) : cJSON_CreateString(number));
}

/* --- text ------------------------------------------------------------------------------------------------------------------- */

static const char* shape_text(const ht_tensor_info* t, char buf[96])
{
    int n = 0;
    for (int d = 0; d < t->n_dims; d++) { n += snprintf(buf + n, 96 - (size_t)n, d ? " x %" PRId64 : "%" PRId64, t->ne[d]); }
    return buf;
}

static void print_facts(const view* v, const char* path)
{
    char        line[2048], size[32];
    uint32_t    id   = 0;
    const char* type = file_type_name(v->meta, &id);
    const char* arch = text_of(v->meta, "general.architecture");
    const char* name = text_of(v->meta, "general.name");
    printf("file       %s\n", ht_printable(path, line, sizeof line));
    if (v->parts) {
        uint64_t alignment = HT_GGUF_DEFAULT_ALIGNMENT;
        ht_gguf_alignment(v->meta, &alignment, NULL);
        printf("format     GGUF %" PRIu32 ", alignment %" PRIu64 ", %d file%s, %s\n", ht_gguf_version(v->parts[0]), alignment, v->n_parts,
               v->n_parts == 1 ? "" : "s", ht_format_bytes(v->n_file_bytes, size, sizeof size));
    } else {
        printf("format     Hugging Face checkpoint, shown as the GGUF it would become\n");
    }
    if (arch) { printf("model      %s", ht_printable(arch, line, sizeof line)); }
    if (arch && name) { printf(", %s", ht_printable(name, line, sizeof line)); }
    if (arch) { printf("\n"); }
    if (type) { printf("file type  %s\n", type); }
    else if (id != UINT32_MAX) { printf("file type  %" PRIu32 "\n", id); }
    printf("tensors    %" PRId64 ", %.0f values, %s, %.4f bits per weight\n", v->n_rows, v->n_elems,
           ht_format_bytes((uint64_t)v->n_tensor_bytes, size, sizeof size), bits_per_weight(v->n_tensor_bytes, v->n_elems));
}

static void print_metadata(const ht_meta* meta, bool full)
{
    char line[512], type[32];
    printf("\nmetadata   %" PRId64 " keys\n", ht_meta_count(meta));
    for (int64_t i = 0; i < ht_meta_count(meta); i++) {
        const ht_meta_kv* kv = ht_meta_at(meta, i);
        if (kv->is_array) { snprintf(type, sizeof type, "%s[%" PRIu64 "]", ht_meta_type_name(kv->type), kv->n_values); }
        else { snprintf(type, sizeof type, "%s", ht_meta_type_name(kv->type)); }
        printf("  %-42s %-14s ", ht_printable(kv->key, line, sizeof line), type);
        print_value(kv, full);
        printf("\n");
    }
}

static void print_tensors(const view* v)
{
    char line[512], shape[96];
    printf("\n%-40s %-8s %-20s %14s %16s\n", "tensor", "type", "shape", "bytes", v->parts ? "offset" : "from");
    for (int64_t i = 0; i < v->n_rows; i++) {
        const row* r = &v->rows[i];
        printf("%-40s %-8s %-20s %14" PRIu64 " ", ht_printable(r->info->name, line, sizeof line), ht_type_get(r->info->type)->name,
               shape_text(r->info, shape), r->info->n_bytes);
        if (!v->parts) { printf("%s\n", ht_printable(r->origin, line, sizeof line)); }
        else if (v->n_parts == 1) { printf("%16" PRIu64 "\n", r->offset_bytes); }
        else { printf("%16" PRIu64 " in part %d\n", r->offset_bytes, r->part + 1); }
    }
}

static void print_totals(const view* v, const type_total totals[HT_TYPE_END])
{
    printf("\n%-8s %8s %16s %16s %12s %7s\n", "type", "tensors", "values", "bytes", "bits/weight", "share");
    for (uint32_t id = 0; id < HT_TYPE_END; id++) {
        const type_total* t = &totals[id];
        if (t->n_tensors == 0) { continue; }
        printf("%-8s %8" PRId64 " %16.0f %16.0f %12.4f %6.1f%%\n", ht_type_get(id)->name, t->n_tensors, t->n_elems, t->n_bytes,
               bits_per_weight(t->n_bytes, t->n_elems), 100.0 * t->n_bytes / v->n_tensor_bytes);
    }
}

/* --- JSON ------------------------------------------------------------------------------------------------------------------- */

static void add_json_metadata(cJSON* document, const ht_meta* meta, bool full)
{
    cJSON* list = cJSON_AddArrayToObject(document, "metadata");
    for (int64_t i = 0; i < ht_meta_count(meta); i++) {
        const ht_meta_kv* kv     = ht_meta_at(meta, i);
        const uint64_t    n      = full || kv->n_values <= SHORT_VALUES ? kv->n_values : SHORT_VALUES;
        cJSON*            pair   = cJSON_CreateObject();
        cJSON*            values = cJSON_CreateArray();
        ht_json_add_text(pair, "key", kv->key);
        cJSON_AddStringToObject(pair, "type", ht_meta_type_name(kv->type));
        for (uint64_t k = 0; k < n; k++) { add_json_value(values, kv, k); }
        if (kv->is_array) {
            cJSON_AddNumberToObject(pair, "n_values", (double)kv->n_values);
            cJSON_AddItemToObject(pair, "values", values);
            cJSON_AddBoolToObject(pair, "shortened", n < kv->n_values);
        } else {
            cJSON_AddItemToObject(pair, "value", cJSON_DetachItemFromArray(values, 0));
            cJSON_Delete(values);
        }
        cJSON_AddItemToArray(list, pair);
    }
}

static void add_json_tensors(cJSON* document, const view* v)
{
    cJSON* list = cJSON_AddArrayToObject(document, "tensors");
    for (int64_t i = 0; i < v->n_rows; i++) {
        const row* r     = &v->rows[i];
        cJSON*     one   = cJSON_CreateObject();
        ht_json_add_text(one, "name", r->info->name);
        cJSON_AddStringToObject(one, "type", ht_type_get(r->info->type)->name);
        cJSON* shape = cJSON_AddArrayToObject(one, "shape");
        for (int d = 0; d < r->info->n_dims; d++) { cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)r->info->ne[d])); }
        cJSON_AddNumberToObject(one, "n_bytes", (double)r->info->n_bytes);
        if (v->parts) {
            cJSON_AddNumberToObject(one, "part", r->part);
            cJSON_AddNumberToObject(one, "offset_bytes", (double)r->offset_bytes);
        } else {
            ht_json_add_text(one, "origin", r->origin);
        }
        cJSON_AddItemToArray(list, one);
    }
}

static void add_json_totals(cJSON* document, const type_total totals[HT_TYPE_END])
{
    cJSON* list = cJSON_AddArrayToObject(document, "types");
    for (uint32_t id = 0; id < HT_TYPE_END; id++) {
        if (totals[id].n_tensors == 0) { continue; }
        cJSON* one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "type", ht_type_get(id)->name);
        cJSON_AddNumberToObject(one, "n_tensors", (double)totals[id].n_tensors);
        cJSON_AddNumberToObject(one, "n_elems", totals[id].n_elems);
        cJSON_AddNumberToObject(one, "n_bytes", totals[id].n_bytes);
        ht_json_add_number(one, "bits_per_weight", bits_per_weight(totals[id].n_bytes, totals[id].n_elems));
        cJSON_AddItemToArray(list, one);
    }
}

static ht_status print_json(const view* v, const char* path, const type_total totals[HT_TYPE_END], bool full, ht_error* err)
{
    uint32_t    id       = 0;
    cJSON*      document = ht_json_document("inspect");
    const char* type     = file_type_name(v->meta, &id);
    const char* arch     = text_of(v->meta, "general.architecture");
    const char* name     = text_of(v->meta, "general.name");
    ht_json_add_text(document, "file", path);
    cJSON_AddStringToObject(document, "format", v->parts ? "gguf" : "hf");
    if (v->parts) {
        cJSON_AddNumberToObject(document, "version", ht_gguf_version(v->parts[0]));
        cJSON_AddNumberToObject(document, "n_parts", v->n_parts);
        cJSON_AddNumberToObject(document, "n_file_bytes", (double)v->n_file_bytes);
        cJSON_AddNumberToObject(document, "data_offset_bytes", (double)ht_gguf_data_offset(v->parts[0]));
    }
    if (arch) { ht_json_add_text(document, "architecture", arch); }
    if (name) { ht_json_add_text(document, "name", name); }
    if (id != UINT32_MAX) { cJSON_AddNumberToObject(document, "file_type_id", id); }
    if (type) { cJSON_AddStringToObject(document, "file_type", type); }
    cJSON_AddNumberToObject(document, "n_tensors", (double)v->n_rows);
    cJSON_AddNumberToObject(document, "n_elems", v->n_elems);
    cJSON_AddNumberToObject(document, "n_bytes", v->n_tensor_bytes);
    ht_json_add_number(document, "bits_per_weight", bits_per_weight(v->n_tensor_bytes, v->n_elems));
    add_json_totals(document, totals);
    add_json_metadata(document, v->meta, full);
    add_json_tensors(document, v);
    return ht_json_print(document, err);
}

static ht_status run(const ht_args* args, const ht_ctx* ctx, int* exit_code, ht_error* err)
{
    ht_status   st                  = HT_STATUS_OK;
    view        v                   = { 0 };
    type_total  totals[HT_TYPE_END] = { 0 };
    const char* path                = ht_args_positional(args, 0);
    const bool  full                = ht_args_has(args, "full");
    (void)exit_code;
    if (is_checkpoint(path)) { HT_TRY(gather_checkpoint(&v, path, ctx, err)); }
    else { HT_TRY(gather_gguf(&v, path, err)); }
    add_up(&v, totals);
    if (ht_args_json(args)) {
        HT_TRY(print_json(&v, path, totals, full, err));
    } else {
        print_facts(&v, path);
        print_metadata(v.meta, full);
        print_tensors(&v);
        print_totals(&v, totals);
    }
done:
    free(v.rows);
    ht_source_close(v.source);
    ht_gguf_split_close(v.parts, v.n_parts);
    return st;
}

static const ht_option options[] = {
    { "full", 0, HT_OPTION_FLAG, NULL, "lists and texts of the metadata in full" },
    { NULL, 0, HT_OPTION_FLAG, NULL, NULL },
};

const ht_command ht_command_inspect = {
    "inspect",
    "FILE.gguf | FOLDER | FILE.safetensors",
    "what is in a file: metadata, tensors, bits per weight",
    "Reads headers only. A Hugging Face checkpoint is shown as the GGUF it would become. Any part of a split GGUF stands for all of them.\n"
    "Lists of more than 8 values are shortened unless --full is given.\n",
    options, 1, 1, run,
};
