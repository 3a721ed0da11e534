/* halftone verify: is a GGUF file sound? Structure, metadata, checksums, and every scale or float a number. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "formats/block_scales.h"
#include "formats/decode.h"
#include "formats/gguf_split.h"
#include "quant/plan.h"
#include "tools/cmd.h"

/* One tensor to look at, and what was found. Filled by one thread each. */
typedef struct item {
    const ht_gguf*        part;
    const ht_tensor_info* tensor;
    ht_status             st;          /* of reading                                       */
    ht_error              err;
    bool                  has_crc32;   /* the file says what it should be                  */
    uint32_t              crc32_expected, crc32;
    int64_t               bad_block, n_bad_blocks;
    int64_t               bad_elem, n_bad_elems; /* --deep: decoded values                 */
} item;

typedef struct problem {
    const char* kind; /* metadata, checksum, scale, value */
    ht_error    where;
} problem;

typedef struct verification {
    ht_gguf** parts;
    int       n_parts;
    item*     items;
    int64_t   n_items, n_crc32;
    uint64_t  n_bytes;   /* of all files */
    bool      deep;
    problem*  problems;
    size_t    n_problems;
} verification;

static ht_status add_problem(verification* v, const ht_gguf* part, const char* kind, const char* tensor, uint64_t offset_bytes, ht_error* err,
                             const char* format, ...) __attribute__((format(printf, 7, 8)));

static ht_status add_problem(verification* v, const ht_gguf* part, const char* kind, const char* tensor, uint64_t offset_bytes, ht_error* err,
                             const char* format, ...)
{
    problem* grown = realloc(v->problems, (v->n_problems + 1) * sizeof *grown);
    if (!grown) { return ht_fail(err, HT_STATUS_NOMEM, "list of problems"); }
    v->problems = grown;
    char    message[sizeof((ht_error*)0)->message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    problem* p = &grown[v->n_problems++];
    *p         = (problem){ kind, HT_ERROR_INIT };
    ht_fail_at(&p->where, HT_STATUS_FORMAT, offset_bytes, "%s", message);
    ht_error_set_file(&p->where, ht_file_path(ht_gguf_file(part)));
    ht_error_set_tensor(&p->where, tensor);
    return HT_STATUS_OK;
}

/* --- metadata --------------------------------------------------------------------------------------------------------------- */

/* Keys whose readers count on a type; a wrong one reads as garbage or not at all. */
static const struct { const char* key; ht_meta_type type; bool is_array; } known_keys[] = {
    { "general.architecture", HT_META_TYPE_STRING, false },   { "general.name", HT_META_TYPE_STRING, false },
    { "general.file_type", HT_META_TYPE_U32, false },         { "tokenizer.ggml.model", HT_META_TYPE_STRING, false },
    { "tokenizer.ggml.pre", HT_META_TYPE_STRING, false },     { "tokenizer.ggml.tokens", HT_META_TYPE_STRING, true },
    { "tokenizer.ggml.merges", HT_META_TYPE_STRING, true },   { "tokenizer.ggml.scores", HT_META_TYPE_F32, true },
    { "tokenizer.ggml.token_type", HT_META_TYPE_I32, true },  { HT_KEY_TENSOR_CRC32, HT_META_TYPE_U32, true },
};

static ht_status check_key_types(verification* v, const ht_gguf* part, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++) {
        const ht_meta_kv* kv = ht_meta_find(ht_gguf_meta(part), known_keys[i].key);
        if (!kv || (kv->type == known_keys[i].type && kv->is_array == known_keys[i].is_array)) { continue; }
        HT_TRY(add_problem(v, part, "metadata", NULL, HT_OFFSET_NONE, err, "%s: expected %s%s, found %s%s", kv->key,
                           ht_meta_type_name(known_keys[i].type), known_keys[i].is_array ? " array" : "", ht_meta_type_name(kv->type),
                           kv->is_array ? " array" : ""));
    }
done:
    return st;
}

/* One entry per token in every list, and an embedding row for every token. */
static ht_status check_vocabulary(verification* v, ht_error* err)
{
    static const char* const lists[] = { "tokenizer.ggml.scores", "tokenizer.ggml.token_type" };
    ht_status         st     = HT_STATUS_OK;
    const ht_gguf*    owner  = NULL;
    const ht_meta*    meta   = ht_gguf_meta(v->parts[0]);
    const ht_meta_kv* tokens = ht_meta_find(meta, "tokenizer.ggml.tokens");
    if (!tokens) { return HT_STATUS_OK; }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const ht_meta_kv* list = ht_meta_find(meta, lists[i]);
        if (!list || list->n_values == tokens->n_values) { continue; }
        HT_TRY(add_problem(v, v->parts[0], "metadata", NULL, HT_OFFSET_NONE, err, "%s: expected %" PRIu64 " values, one per token, found %" PRIu64,
                           lists[i], tokens->n_values, list->n_values));
    }
    const ht_tensor_info* embedding = ht_gguf_split_find(v->parts, v->n_parts, "token_embd.weight", &owner);
    if (embedding && (uint64_t)ht_tensor_n_rows(embedding) < tokens->n_values) {
        HT_TRY(add_problem(v, owner, "metadata", embedding->name, HT_OFFSET_NONE, err, "%" PRId64 " rows, but the tokenizer has %" PRIu64 " tokens",
                           ht_tensor_n_rows(embedding), tokens->n_values));
    }
done:
    return st;
}

/* Every layer that block_count promises has tensors, and none is beyond. */
static ht_status check_layers(verification* v, ht_error* err)
{
    ht_status      st   = HT_STATUS_OK;
    const ht_meta* meta = ht_gguf_meta(v->parts[0]);
    const char*    arch = NULL;
    uint32_t       n    = 0;
    bool*          seen = NULL;
    char           key[128];
    ht_error       ignored = HT_ERROR_INIT; /* a wrong type of general.architecture is reported by check_key_types */
    if (ht_meta_get_string(meta, "general.architecture", true, &arch, &ignored) != HT_STATUS_OK) { return HT_STATUS_OK; }
    snprintf(key, sizeof key, "%s.block_count", arch);
    ht_error wrong = HT_ERROR_INIT;
    if (ht_meta_get_u32(meta, key, false, &n, &wrong) != HT_STATUS_OK) {
        return add_problem(v, v->parts[0], "metadata", NULL, HT_OFFSET_NONE, err, "%s", wrong.message);
    }
    if (n == 0) { return HT_STATUS_OK; }
    if (n > v->n_items) {
        return add_problem(v, v->parts[0], "metadata", NULL, HT_OFFSET_NONE, err, "%s is %" PRIu32 ", but there are %" PRId64 " tensors", key, n, v->n_items);
    }
    seen = calloc(n, sizeof *seen);
    HT_CHECK(seen, NOMEM, "%" PRIu32 " layers", n);
    for (int64_t i = 0; i < v->n_items; i++) {
        unsigned layer = 0;
        if (sscanf(v->items[i].tensor->name, "blk.%9u.", &layer) != 1) { continue; }
        if (layer < n) { seen[layer] = true; }
        else { HT_TRY(add_problem(v, v->items[i].part, "metadata", v->items[i].tensor->name, HT_OFFSET_NONE, err, "%s is %" PRIu32, key, n)); }
    }
    for (uint32_t layer = 0; layer < n; layer++) {
        if (seen[layer]) { continue; }
        HT_TRY(add_problem(v, v->parts[0], "metadata", NULL, HT_OFFSET_NONE, err, "%s is %" PRIu32 ", but blk.%" PRIu32 " has no tensors", key, n, layer));
    }
done:
    free(seen);
    return st;
}

/* Hands the checksums of each part to its tensors. */
static ht_status take_checksums(verification* v, ht_error* err)
{
    ht_status st   = HT_STATUS_OK;
    item*     next = v->items;
    for (int p = 0; p < v->n_parts; p++) {
        const int64_t     n  = ht_gguf_n_tensors(v->parts[p]);
        const ht_meta_kv* kv = ht_meta_find(ht_gguf_meta(v->parts[p]), HT_KEY_TENSOR_CRC32);
        if (kv && kv->is_array && kv->type == HT_META_TYPE_U32 && kv->n_values == (uint64_t)n) {
            for (int64_t i = 0; i < n; i++) {
                next[i].has_crc32      = true;
                next[i].crc32_expected = ((const uint32_t*)kv->data)[i];
            }
            v->n_crc32 += n;
        } else if (kv && kv->n_values != (uint64_t)n) {
            HT_TRY(add_problem(v, v->parts[p], "metadata", NULL, HT_OFFSET_NONE, err, "%s: expected %" PRId64 " values, one per tensor, found %" PRIu64,
                               HT_KEY_TENSOR_CRC32, n, kv->n_values));
        }
        next += n;
    }
done:
    return st;
}

/* --- tensors ---------------------------------------------------------------------------------------------------------------- */

enum { CHUNK_BYTES = 1 << 20, DECODE_ELEMS = 1 << 14 };

static void check_scales(item* it, const unsigned char* blocks, int64_t first_block, int64_t n_blocks)
{
    const size_t n_each = (size_t)ht_type_get(it->tensor->type)->block_bytes;
    for (int64_t i = 0; i < n_blocks; i++) {
        i += ht_blocks_find_nonfinite(it->tensor->type, blocks + (size_t)i * n_each, n_blocks - i);
        if (i == n_blocks) { break; }
        if (it->n_bad_blocks++ == 0) { it->bad_block = first_block + i; }
    }
}

static void check_values(item* it, const unsigned char* blocks, int64_t first_block, int64_t n_blocks, float* values)
{
    const ht_type_info*    info     = ht_type_get(it->tensor->type);
    const ht_decode_row_fn decode   = ht_decode_row_get(it->tensor->type);
    const int64_t          n_a_time = DECODE_ELEMS / info->block_elems;
    for (int64_t b = 0; b < n_blocks; b += n_a_time) {
        const int64_t n = n_a_time < n_blocks - b ? n_a_time : n_blocks - b;
        decode(blocks + (size_t)b * (size_t)info->block_bytes, values, n * info->block_elems);
        for (int64_t i = 0; i < n * info->block_elems; i++) {
            if (!isfinite(values[i]) && it->n_bad_elems++ == 0) { it->bad_elem = (first_block + b) * info->block_elems + i; }
        }
    }
}

static ht_status check_tensor(item* it, bool deep, const ht_ctx* ctx)
{
    ht_status           st       = HT_STATUS_OK;
    ht_error*           err      = &it->err;
    const ht_type_info* info     = ht_type_get(it->tensor->type);
    const size_t        n_chunk  = CHUNK_BYTES / (size_t)info->block_bytes * (size_t)info->block_bytes;
    unsigned char*      bytes    = malloc(n_chunk);
    float*              values   = deep ? malloc(DECODE_ELEMS * sizeof *values) : NULL;
    uLong               crc      = crc32(0, NULL, 0);
    HT_CHECK(bytes && (values || !deep), NOMEM, "buffers");
    for (uint64_t at = 0; at < it->tensor->n_bytes; at += n_chunk) {
        const size_t  n           = it->tensor->n_bytes - at < n_chunk ? (size_t)(it->tensor->n_bytes - at) : n_chunk;
        const int64_t first_block = (int64_t)(at / (uint64_t)info->block_bytes), n_blocks = (int64_t)(n / (size_t)info->block_bytes);
        HT_CHECK(!ht_cancelled(ctx), CANCELLED, "interrupted");
        HT_TRY(ht_gguf_read(it->part, it->tensor, at, bytes, n, err));
        if (it->has_crc32) { crc = crc32_z(crc, bytes, n); }
        check_scales(it, bytes, first_block, n_blocks);
        if (deep) { check_values(it, bytes, first_block, n_blocks, values); }
    }
    it->crc32 = (uint32_t)crc;
done:
    free(values);
    free(bytes);
    return st;
}

static ht_status check_tensors(verification* v, const ht_ctx* ctx, ht_error* err)
{
    uint64_t n_done = 0, n_total = 0;
    for (int64_t i = 0; i < v->n_items; i++) { n_total += v->items[i].tensor->n_bytes; }
#pragma omp parallel for schedule(dynamic, 1) num_threads(ctx->n_threads)
    for (int64_t i = 0; i < v->n_items; i++) {
        item* it = &v->items[i];
        it->st   = check_tensor(it, v->deep, ctx);
#pragma omp critical(verify_progress)
        {
            n_done += it->tensor->n_bytes;
            ht_progress(ctx, "verify", n_done, n_total);
        }
    }
    for (int64_t i = 0; i < v->n_items; i++) {
        if (v->items[i].st == HT_STATUS_OK) { continue; }
        if (err) { *err = v->items[i].err; }
        return v->items[i].st;
    }
    return HT_STATUS_OK;
}

/* In file order, whatever thread came first. */
static ht_status judge_tensors(verification* v, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    for (int64_t i = 0; i < v->n_items; i++) {
        const item*           it    = &v->items[i];
        const ht_tensor_info* t     = it->tensor;
        const ht_type_info*   info  = ht_type_get(t->type);
        const uint64_t        start = ht_gguf_data_offset(it->part) + t->offset_bytes;
        if (it->has_crc32 && it->crc32 != it->crc32_expected) {
            HT_TRY(add_problem(v, it->part, "checksum", t->name, start, err, "CRC-32: expected %08" PRIx32 ", found %08" PRIx32, it->crc32_expected,
                               it->crc32));
        }
        if (it->n_bad_blocks > 0) {
            const int64_t elem = it->bad_block * info->block_elems;
            HT_TRY(add_problem(v, it->part, "scale", t->name, start + (uint64_t)it->bad_block * (uint64_t)info->block_bytes, err,
                               "NaN or Inf in %s %" PRId64 " (row %" PRId64 ", column %" PRId64 "), %" PRId64 " in all",
                               info->block_elems > 1 ? "a scale of block" : "value", it->bad_block, elem / t->ne[0], elem % t->ne[0], it->n_bad_blocks));
        } else if (it->n_bad_elems > 0) { /* the scales are numbers, but their products overflow */
            HT_TRY(add_problem(v, it->part, "value", t->name, start + (uint64_t)(it->bad_elem / info->block_elems) * (uint64_t)info->block_bytes, err,
                               "NaN or Inf decoded at row %" PRId64 ", column %" PRId64 ", %" PRId64 " in all", it->bad_elem / t->ne[0],
                               it->bad_elem % t->ne[0], it->n_bad_elems));
        }
    }
done:
    return st;
}

/* --- the report ------------------------------------------------------------------------------------------------------------- */

static void print_text(const verification* v, const char* path)
{
    char line[2048], size[32];
    for (size_t i = 0; i < v->n_problems; i++) { printf("%s\n", ht_error_format(&v->problems[i].where, line, sizeof line)); }
    ht_printable(path, line, sizeof line);
    if (v->n_problems > 0) {
        printf("%s: not sound: %zu problem%s\n", line, v->n_problems, v->n_problems == 1 ? "" : "s");
        return;
    }
    printf("%s: sound: %" PRId64 " tensors, %s; ", line, v->n_items, ht_format_bytes(v->n_bytes, size, sizeof size));
    if (v->n_crc32 > 0) { printf("%" PRId64 " checksums match; ", v->n_crc32); }
    else { printf("no checksums in the file; "); }
    printf("%s\n", v->deep ? "all decoded values are finite" : "all scales are finite");
}

static ht_status print_json(const verification* v, const char* path, ht_error* err)
{
    cJSON* document = ht_json_document("verify");
    ht_json_add_text(document, "file", path);
    cJSON_AddBoolToObject(document, "sound", v->n_problems == 0);
    cJSON_AddBoolToObject(document, "deep", v->deep);
    cJSON_AddNumberToObject(document, "n_parts", v->n_parts);
    cJSON_AddNumberToObject(document, "n_tensors", (double)v->n_items);
    cJSON_AddNumberToObject(document, "n_bytes", (double)v->n_bytes);
    cJSON_AddNumberToObject(document, "n_checksums", (double)v->n_crc32);
    cJSON* list = cJSON_AddArrayToObject(document, "problems");
    for (size_t i = 0; i < v->n_problems; i++) {
        const problem* p   = &v->problems[i];
        cJSON*         row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "kind", p->kind);
        ht_json_add_text(row, "file", p->where.file);
        if (p->where.tensor[0]) { ht_json_add_text(row, "tensor", p->where.tensor); }
        if (p->where.offset_bytes != HT_OFFSET_NONE) { cJSON_AddNumberToObject(row, "offset_bytes", (double)p->where.offset_bytes); }
        ht_json_add_text(row, "message", p->where.message);
        cJSON_AddItemToArray(list, row);
    }
    return ht_json_print(document, err);
}

static ht_status open_parts(verification* v, const char* path, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    HT_TRY(ht_gguf_split_open(&v->parts, &v->n_parts, path, err));
    for (int p = 0; p < v->n_parts; p++) {
        v->n_items += ht_gguf_n_tensors(v->parts[p]);
        v->n_bytes += ht_file_size(ht_gguf_file(v->parts[p]));
    }
    v->items = calloc((size_t)v->n_items + 1, sizeof *v->items);
    HT_CHECK(v->items, NOMEM, "%" PRId64 " tensors", v->n_items);
    item* next = v->items;
    for (int p = 0; p < v->n_parts; p++) {
        for (int64_t i = 0; i < ht_gguf_n_tensors(v->parts[p]); i++) {
            *next++ = (item){ .part = v->parts[p], .tensor = ht_gguf_tensor_at(v->parts[p], i), .err = HT_ERROR_INIT };
        }
    }
done:
    return st;
}

static ht_status run(const ht_args* args, const ht_ctx* ctx, int* exit_code, ht_error* err)
{
    ht_status    st   = HT_STATUS_OK;
    verification v    = { .deep = ht_args_has(args, "deep") };
    const char*  path = ht_args_positional(args, 0);
    HT_TRY(open_parts(&v, path, err));
    for (int p = 0; p < v.n_parts; p++) { HT_TRY(check_key_types(&v, v.parts[p], err)); }
    HT_TRY(check_vocabulary(&v, err));
    HT_TRY(check_layers(&v, err));
    HT_TRY(take_checksums(&v, err));
    HT_TRY(check_tensors(&v, ctx, err));
    HT_TRY(judge_tensors(&v, err));
    if (ht_args_json(args)) { HT_TRY(print_json(&v, path, err)); }
    else { print_text(&v, path); }
    *exit_code = v.n_problems > 0 ? HT_EXIT_NO : HT_EXIT_OK;
done:
    free(v.problems);
    free(v.items);
    ht_gguf_split_close(v.parts, v.n_parts);
    return st;
}

static const ht_option options[] = {
    { "deep", 0, HT_OPTION_FLAG, NULL, "also decode every block and look at every value" },
    { NULL, 0, HT_OPTION_FLAG, NULL, NULL },
};

const ht_command ht_command_verify = {
    "verify",
    "FILE.gguf",
    "is a file sound? structure, checksums, finite scales",
    "Reads every byte once. Checks that the header is whole and the tensors lie where it says, that the metadata agrees with itself and with the\n"
    "tensors, that each tensor has the CRC-32 recorded when Halftone wrote it, and that no scale or float is NaN or Inf.\n"
    "Any part of a split file stands for all of them.\n"
    "\n"
    "Exit code 0: sound. 1: not sound, every problem is listed. 3: not readable as GGUF at all (the first reason is given).\n",
    options, 1, 1, run,
};
