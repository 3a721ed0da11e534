/*
 * The header text stays in memory and is the pool of the names: the scanner decodes strings in place, so opening costs the header, one
 * ht_st_tensor per tensor and one pointer per tensor for lookup by name.
 */
#include "formats/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/checked.h"
#include "formats/base/half.h"
#include "formats/decode.h"
#include "formats/json_scan.h"

/* --- value types -------------------------------------------------------------------------------------------------------------------- */

static void f8_e4m3_decode(const void* restrict bytes, float* restrict out, int64_t n_elems)
{
    for (int64_t i = 0; i < n_elems; i++) { out[i] = ht_f8_e4m3_to_f32(((const uint8_t*)bytes)[i]); }
}

static void f8_e5m2_decode(const void* restrict bytes, float* restrict out, int64_t n_elems)
{
    for (int64_t i = 0; i < n_elems; i++) { out[i] = ht_f8_e5m2_to_f32(((const uint8_t*)bytes)[i]); }
}

static void f8_e8m0_decode(const void* restrict bytes, float* restrict out, int64_t n_elems)
{
    for (int64_t i = 0; i < n_elems; i++) { out[i] = ht_e8m0_to_f32(((const uint8_t*)bytes)[i]); }
}

typedef struct dtype_row {
    const char*      name;
    int              n_bytes;
    ht_decode_row_fn decode; /* NULL: not a float */
} dtype_row;

static const dtype_row dtypes[HT_DTYPE_COUNT] = {
    [HT_DTYPE_F64]     = { "F64", 8, ht_f64_decode_row_ref },
    [HT_DTYPE_F32]     = { "F32", 4, ht_f32_decode_row_ref },
    [HT_DTYPE_F16]     = { "F16", 2, ht_f16_decode_row_ref },
    [HT_DTYPE_BF16]    = { "BF16", 2, ht_bf16_decode_row_ref },
    [HT_DTYPE_F8_E4M3] = { "F8_E4M3", 1, f8_e4m3_decode },
    [HT_DTYPE_F8_E5M2] = { "F8_E5M2", 1, f8_e5m2_decode },
    [HT_DTYPE_F8_E8M0] = { "F8_E8M0", 1, f8_e8m0_decode },
    [HT_DTYPE_I64]     = { "I64", 8, NULL },
    [HT_DTYPE_I32]     = { "I32", 4, NULL },
    [HT_DTYPE_I16]     = { "I16", 2, NULL },
    [HT_DTYPE_I8]      = { "I8", 1, NULL },
    [HT_DTYPE_U64]     = { "U64", 8, NULL },
    [HT_DTYPE_U32]     = { "U32", 4, NULL },
    [HT_DTYPE_U16]     = { "U16", 2, NULL },
    [HT_DTYPE_U8]      = { "U8", 1, NULL },
    [HT_DTYPE_BOOL]    = { "BOOL", 1, NULL },
};

const char* ht_dtype_name(ht_dtype dtype) { return dtypes[dtype].name; }
int         ht_dtype_bytes(ht_dtype dtype) { return dtypes[dtype].n_bytes; }
bool        ht_dtype_is_float(ht_dtype dtype) { return dtypes[dtype].decode != NULL; }

/* --- header ------------------------------------------------------------------------------------------------------------------------- */

struct ht_safetensors {
    ht_file*             file;
    char*                header;    /* n_header bytes of JSON and a NUL                  */
    uint64_t             n_header;
    ht_st_tensor*        tensors;   /* sorted by offset                                  */
    int64_t              n_tensors, capacity;
    const ht_st_tensor** by_name;
};

/* What one entry of the header said so far. */
typedef struct entry {
    ht_st_tensor tensor;
    bool         has_dtype, has_shape, has_offsets;
    uint64_t     begin, end;
} entry;

static ht_status read_dtype(ht_json_scan* scan, entry* e, ht_error* err)
{
    ht_status   st   = HT_STATUS_OK;
    const char* name = NULL;
    HT_TRY(ht_json_scan_string(scan, &name, err));
    for (int i = 0; i < HT_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, name) != 0) { continue; }
        e->tensor.dtype = (ht_dtype)i;
        return HT_STATUS_OK;
    }
    HT_CHECK(0, UNSUPPORTED, "dtype \"%s\" is not one that Halftone reads", name);
done:
    return st;
}

static ht_status read_shape(ht_json_scan* scan, entry* e, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    HT_TRY(ht_json_scan_expect(scan, '[', err));
    if (ht_json_scan_accept(scan, ']')) { return HT_STATUS_OK; }
    do {
        uint64_t n = 0;
        HT_TRY(ht_json_scan_u64(scan, &n, err));
        HT_CHECK(e->tensor.n_dims < HT_SAFETENSORS_MAX_DIMS, UNSUPPORTED, "more than %d dimensions", HT_SAFETENSORS_MAX_DIMS);
        HT_CHECK(n <= INT64_MAX, BOUNDS, "dimension %" PRIu64 " is too large", n);
        e->tensor.shape[e->tensor.n_dims++] = (int64_t)n;
    } while (ht_json_scan_accept(scan, ','));
    HT_TRY(ht_json_scan_expect(scan, ']', err));
done:
    return st;
}

static ht_status read_offsets(ht_json_scan* scan, entry* e, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    HT_TRY(ht_json_scan_expect(scan, '[', err));
    HT_TRY(ht_json_scan_u64(scan, &e->begin, err));
    HT_TRY(ht_json_scan_expect(scan, ',', err));
    HT_TRY(ht_json_scan_u64(scan, &e->end, err));
    HT_TRY(ht_json_scan_expect(scan, ']', err));
done:
    return st;
}

/* "dtype", "shape" and "data_offsets", each once; other keys are passed over. */
static ht_status read_entry(ht_json_scan* scan, entry* e, ht_error* err)
{
    const struct { const char* key; bool* seen; ht_status (*read)(ht_json_scan*, entry*, ht_error*); } fields[] = {
        { "dtype", &e->has_dtype, read_dtype }, { "shape", &e->has_shape, read_shape }, { "data_offsets", &e->has_offsets, read_offsets },
    };
    ht_status st = HT_STATUS_OK;
    HT_TRY(ht_json_scan_expect(scan, '{', err));
    do {
        const char* key   = NULL;
        bool        known = false;
        HT_TRY(ht_json_scan_string(scan, &key, err));
        HT_TRY(ht_json_scan_expect(scan, ':', err));
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
            if (strcmp(fields[i].key, key) != 0) { continue; }
            HT_CHECK(!*fields[i].seen, FORMAT, "duplicate key %s in the header entry", key);
            *fields[i].seen = known = true;
            HT_TRY(fields[i].read(scan, e, err));
        }
        if (!known) { HT_TRY(ht_json_scan_skip(scan, err)); }
    } while (ht_json_scan_accept(scan, ','));
    HT_TRY(ht_json_scan_expect(scan, '}', err));
    HT_CHECK(e->has_dtype && e->has_shape && e->has_offsets, FORMAT, "the header entry has no %s",
             !e->has_dtype ? "dtype" : !e->has_shape ? "shape" : "data_offsets");
done:
    return st;
}

/* Sizes that must agree, and the range inside the data. */
static ht_status finish_entry(entry* e, uint64_t data_offset, uint64_t n_data, ht_error* err)
{
    ht_status     st = HT_STATUS_OK;
    ht_st_tensor* t  = &e->tensor;
    uint64_t      n_bytes = 0;
    t->n_elems = 1;
    for (int i = 0; i < t->n_dims; i++) { HT_CHECK(ht_mul_i64(t->n_elems, t->shape[i], &t->n_elems), BOUNDS, "size overflow"); }
    HT_CHECK(ht_mul_u64((uint64_t)t->n_elems, (uint64_t)dtypes[t->dtype].n_bytes, &n_bytes), BOUNDS, "size overflow");
    HT_CHECK(e->begin <= e->end, FORMAT, "data_offsets [%" PRIu64 ", %" PRIu64 "] are reversed", e->begin, e->end);
    HT_CHECK(e->end <= n_data, BOUNDS, "data_offsets [%" PRIu64 ", %" PRIu64 "] leave the file, which has %" PRIu64 " bytes of data", e->begin,
             e->end, n_data);
    HT_CHECK(e->end - e->begin == n_bytes, FORMAT, "data_offsets [%" PRIu64 ", %" PRIu64 "] span %" PRIu64 " bytes, shape and dtype need %" PRIu64,
             e->begin, e->end, e->end - e->begin, n_bytes);
    t->offset_bytes = data_offset + e->begin;
    t->n_bytes      = n_bytes;
done:
    return st;
}

static ht_status append(ht_safetensors* s, const ht_st_tensor* tensor, ht_error* err)
{
    if (s->n_tensors == s->capacity) {
        const int64_t capacity = s->capacity ? s->capacity + s->capacity / 2 : 64;
        ht_st_tensor* grown    = realloc(s->tensors, (size_t)capacity * sizeof *grown);
        if (!grown) { return ht_fail(err, HT_STATUS_NOMEM, "table of %" PRId64 " tensors", capacity); }
        s->tensors  = grown;
        s->capacity = capacity;
    }
    s->tensors[s->n_tensors++] = *tensor;
    return HT_STATUS_OK;
}

/* Strings by definition, but writers put numbers and nulls there: said, not refused, as nothing depends on them. */
static ht_status check_metadata(ht_json_scan* scan, const ht_file* file, const ht_log* log, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    if (ht_json_scan_peek(scan) != '{') {
        ht_log_warn(log, "%s: __metadata__ is not an object; ignored", ht_file_path(file));
        return ht_json_scan_skip(scan, err);
    }
    scan->pos++;
    if (ht_json_scan_accept(scan, '}')) { return HT_STATUS_OK; }
    do {
        const char* key = NULL;
        HT_TRY(ht_json_scan_string(scan, &key, err));
        HT_TRY(ht_json_scan_expect(scan, ':', err));
        if (ht_json_scan_peek(scan) != '"') { ht_log_warn(log, "%s: __metadata__.%s is not a string; ignored", ht_file_path(file), key); }
        HT_TRY(ht_json_scan_skip(scan, err));
    } while (ht_json_scan_accept(scan, ','));
    HT_TRY(ht_json_scan_expect(scan, '}', err));
done:
    return st;
}

static ht_status read_entries(ht_safetensors* s, const ht_log* log, ht_error* err)
{
    ht_status      st           = HT_STATUS_OK;
    ht_json_scan   scan         = { s->header, (size_t)s->n_header, 0, 8 };
    const uint64_t data_offset  = 8 + s->n_header, n_data = ht_file_size(s->file) - data_offset;
    bool           has_metadata = false;
    HT_TRY(ht_json_scan_expect(&scan, '{', err));
    if (ht_json_scan_accept(&scan, '}')) { goto end; }
    do {
        entry       e    = { .tensor = { .name = NULL } };
        const char* name = NULL;
        HT_TRY(ht_json_scan_string(&scan, &name, err));
        HT_TRY(ht_json_scan_expect(&scan, ':', err));
        if (strcmp(name, "__metadata__") == 0) {
            HT_CHECK(!has_metadata, FORMAT, "duplicate key __metadata__ in header");
            has_metadata = true;
            HT_TRY(check_metadata(&scan, s->file, log, err));
            continue;
        }
        e.tensor.name = name;
        st            = read_entry(&scan, &e, err);
        if (st == HT_STATUS_OK) { st = finish_entry(&e, data_offset, n_data, err); }
        if (st == HT_STATUS_OK) { st = append(s, &e.tensor, err); }
        if (st != HT_STATUS_OK) {
            ht_error_set_tensor(err, name);
            goto done;
        }
    } while (ht_json_scan_accept(&scan, ','));
    HT_TRY(ht_json_scan_expect(&scan, '}', err));
end:
    if (ht_json_scan_peek(&scan) != '\0' || scan.pos != scan.n_bytes) { st = ht_json_scan_fail(&scan, "the end of the header", err); }
done:
    return st;
}

static int compare_names(const void* a, const void* b)
{
    return strcmp((*(const ht_st_tensor* const*)a)->name, (*(const ht_st_tensor* const*)b)->name);
}

/* Empty tensors go before the one that starts at the same byte. */
static int compare_offsets(const void* a, const void* b)
{
    const ht_st_tensor *x = a, *y = b;
    if (x->offset_bytes != y->offset_bytes) { return x->offset_bytes < y->offset_bytes ? -1 : 1; }
    return x->n_bytes != y->n_bytes ? (x->n_bytes < y->n_bytes ? -1 : 1) : 0;
}

/* After this the tensors are in the order of their data, each name once, and the data covered exactly. */
static ht_status check_tensors(ht_safetensors* s, ht_error* err)
{
    ht_status      st = HT_STATUS_OK;
    const uint64_t data_offset = 8 + s->n_header, n_file = ht_file_size(s->file);
    const size_t   n  = (size_t)s->n_tensors;
    uint64_t       at = data_offset;
    const char*    tensor = NULL;
    if (n > 0) { qsort(s->tensors, n, sizeof *s->tensors, compare_offsets); }
    s->by_name = malloc((n + 1) * sizeof *s->by_name);
    HT_CHECK(s->by_name, NOMEM, "name table");
    for (size_t i = 0; i < n; i++) { s->by_name[i] = &s->tensors[i]; }
    qsort(s->by_name, n, sizeof *s->by_name, compare_names);
    for (size_t i = 1; i < n; i++) {
        tensor = s->by_name[i]->name;
        HT_CHECK(strcmp(s->by_name[i - 1]->name, tensor) != 0, FORMAT, "duplicate key %s in header", tensor);
    }
    for (size_t i = 0; i < n; i++) {
        const ht_st_tensor* t     = &s->tensors[i];
        const uint64_t      begin = t->offset_bytes - data_offset, end = begin + t->n_bytes, expected = at - data_offset;
        tensor = t->name;
        HT_CHECK(t->offset_bytes >= at, FORMAT, "data_offsets [%" PRIu64 ", %" PRIu64 "] overlap %s, which ends at %" PRIu64, begin, end, t[-1].name,
                 expected);
        HT_CHECK(t->offset_bytes == at, FORMAT, "data_offsets [%" PRIu64 ", %" PRIu64 "] leave a hole: the bytes from %" PRIu64 " belong to no tensor",
                 begin, end, expected);
        at += t->n_bytes;
    }
    tensor = NULL;
    HT_CHECK(at == n_file, FORMAT, "trailing data: the tensors end at byte %" PRIu64 ", the file at %" PRIu64, at, n_file);
done:
    if (st != HT_STATUS_OK) { ht_error_set_tensor(err, tensor); }
    return st;
}

ht_status ht_safetensors_open(ht_safetensors** out, const char* path, const ht_log* log, ht_error* err)
{
    ht_status       st = HT_STATUS_OK;
    uint8_t         prefix[8];
    ht_safetensors* s = calloc(1, sizeof *s);
    HT_CHECK(s, NOMEM, "safetensors handle");
    HT_TRY(ht_file_open(&s->file, path, err));
    HT_TRY(ht_file_read_at(s->file, 0, prefix, sizeof prefix, err));
    s->n_header = ht_load_u64le(prefix);
    HT_CHECK(s->n_header <= ht_file_size(s->file) - 8, BOUNDS, "the header of %" PRIu64 " bytes leaves the file of %" PRIu64, s->n_header,
             ht_file_size(s->file));
    HT_CHECK(s->n_header <= HT_SAFETENSORS_MAX_HEADER_BYTES, UNSUPPORTED, "the header of %" PRIu64 " bytes is above the limit of %d", s->n_header,
             HT_SAFETENSORS_MAX_HEADER_BYTES);
    s->header = malloc((size_t)s->n_header + 1);
    HT_CHECK(s->header, NOMEM, "header of %" PRIu64 " bytes", s->n_header);
    HT_TRY(ht_file_read_at(s->file, 8, s->header, (size_t)s->n_header, err));
    HT_TRY(read_entries(s, log, err));
    HT_TRY(check_tensors(s, err));
    *out = s;
    s    = NULL;
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    ht_safetensors_close(s);
    return st;
}

void ht_safetensors_close(ht_safetensors* st)
{
    if (!st) { return; }
    ht_file_close(st->file);
    free(st->header);
    free(st->tensors);
    free(st->by_name);
    free(st);
}

const ht_file*      ht_safetensors_file(const ht_safetensors* st) { return st->file; }
uint64_t            ht_safetensors_n_header(const ht_safetensors* st) { return 8 + st->n_header; }
int64_t             ht_safetensors_n_tensors(const ht_safetensors* st) { return st->n_tensors; }
const ht_st_tensor* ht_safetensors_tensor_at(const ht_safetensors* st, int64_t index) { return &st->tensors[index]; }

const ht_st_tensor* ht_safetensors_find(const ht_safetensors* st, const char* name)
{
    const ht_st_tensor  key = { .name = name };
    const ht_st_tensor* p   = &key;
    const ht_st_tensor* const* found = bsearch(&p, st->by_name, (size_t)st->n_tensors, sizeof *st->by_name, compare_names);
    return found ? *found : NULL;
}

/* --- data --------------------------------------------------------------------------------------------------------------------------- */

ht_status ht_safetensors_read_raw(const ht_safetensors* st, const ht_st_tensor* tensor, int64_t elem, int64_t n_elems, void* out, ht_error* err)
{
    const int n_bytes = dtypes[tensor->dtype].n_bytes;
    ht_status status  = HT_STATUS_OK;
    if (elem < 0 || n_elems < 0 || elem > tensor->n_elems || n_elems > tensor->n_elems - elem) {
        status = ht_fail(err, HT_STATUS_BOUNDS, "elements %" PRId64 " + %" PRId64 " of %" PRId64, elem, n_elems, tensor->n_elems);
    } else {
        status = ht_file_read_at(st->file, tensor->offset_bytes + (uint64_t)elem * (uint64_t)n_bytes, out, (size_t)n_elems * (size_t)n_bytes, err);
    }
    if (status != HT_STATUS_OK) { ht_error_set_tensor(err, tensor->name); }
    return status;
}

ht_status ht_safetensors_read_f32(const ht_safetensors* st_file, const ht_st_tensor* tensor, int64_t elem, int64_t n_elems, float* out, ht_error* err)
{
    enum { PIECE = 1 << 16 };
    ht_status       st     = HT_STATUS_OK;
    const dtype_row dtype  = dtypes[tensor->dtype];
    const int64_t   n_room = n_elems < PIECE ? n_elems : PIECE;
    void*           bytes  = NULL;
    HT_CHECK(dtype.decode, ARG, "dtype %s is not a float", dtype.name);
    if (tensor->dtype == HT_DTYPE_F32) { return ht_safetensors_read_raw(st_file, tensor, elem, n_elems, out, err); }
    bytes = malloc((size_t)(n_room > 0 ? n_room : 1) * (size_t)dtype.n_bytes);
    HT_CHECK(bytes, NOMEM, "scratch of %" PRId64 " values", n_room);
    for (int64_t i = 0; i < n_elems; i += PIECE) {
        const int64_t n = n_elems - i < PIECE ? n_elems - i : PIECE;
        HT_TRY(ht_safetensors_read_raw(st_file, tensor, elem + i, n, bytes, err));
        dtype.decode(bytes, out + i, n);
    }
done:
    free(bytes);
    if (st != HT_STATUS_OK) { ht_error_set_tensor(err, tensor->name); }
    return st;
}
