#include "quant/statistics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/name_map.h"
#include "quant/recipe.h"

enum {
    MAX_ENTRIES   = 1 << 20, /* far beyond any model's matrices                    */
    MAX_DAT_NAME  = 1 << 12,
    MAX_DAT_BYTES = 1 << 30
};

/* An entry with what it owns. */
typedef struct owned_entry {
    ht_statistics_entry   e;
    double *              sum_sq, *counts;
    float *               max_abs, *row_weight[2];
    const ht_tensor_info* hessian[HT_HESSIAN_COUNT]; /* of the GGUF */
    bool                  is_left_out;
} owned_entry;

struct ht_statistics {
    char*        path;
    ht_gguf*     gguf; /* NULL for a .dat                       */
    ht_meta*     meta; /* of a .dat; else the GGUF's own is used */
    owned_entry* entries;
    int64_t      n_entries, n_sanitized;
};

static const char* const suffixes[HT_HESSIAN_COUNT] = { "hessian", "hessian_guided", "hessian_guided_1", "hessian_held", "hessian_held_1" };

const char* ht_hessian_suffix(ht_hessian_kind kind) { return suffixes[kind]; }

static const char row_weight_suffix[2][16] = { "row_weight", "row_weight_1" };

/* --- entries ------------------------------------------------------------------------------------------------------------------------ */

static ht_status entry_alloc(owned_entry* o, const char* name, int64_t n_cols, int64_t n_mats, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    snprintf(o->e.name, sizeof o->e.name, "%s", name);
    o->e.n_cols = n_cols;
    o->e.n_mats = n_mats;
    o->sum_sq   = calloc((size_t)(n_cols * n_mats), sizeof *o->sum_sq);
    o->counts   = calloc((size_t)n_mats, sizeof *o->counts);
    HT_CHECK(o->sum_sq && o->counts, NOMEM, "statistics of %s", name);
    o->e.sum_sq = o->sum_sq;
    o->e.counts = o->counts;
done:
    return st;
}

static void entry_free(owned_entry* o)
{
    free(o->sum_sq);
    free(o->counts);
    free(o->max_abs);
    free(o->row_weight[0]);
    free(o->row_weight[1]);
}

/* The first fault of an entry's numbers, or OK. */
static ht_status entry_check(const owned_entry* o, ht_error* err)
{
    const ht_statistics_entry* e = &o->e;
    for (int64_t m = 0; m < e->n_mats; m++) {
        if (!isfinite(e->counts[m]) || e->counts[m] < 0.0) {
            ht_fail(err, HT_STATUS_NUMERIC, "the token count of matrix %" PRId64 " is %g", m, e->counts[m]);
            ht_error_set_tensor(err, e->name);
            return HT_STATUS_NUMERIC;
        }
        for (int64_t i = 0; i < e->n_cols; i++) {
            const double v = e->sum_sq[m * e->n_cols + i];
            if (isfinite(v) && v >= 0.0 && (v == 0.0 || e->counts[m] > 0.0)) { continue; }
            if (isfinite(v) && v > 0.0) { ht_fail(err, HT_STATUS_NUMERIC, "value %" PRId64 " is %g, but no token was counted", m * e->n_cols + i, v); }
            else { ht_fail(err, HT_STATUS_NUMERIC, "value %" PRId64 " is %g; a sum of squares is finite and not negative (--sanitize replaces the entry by ones)", m * e->n_cols + i, v); }
            ht_error_set_tensor(err, e->name);
            return HT_STATUS_NUMERIC;
        }
    }
    return HT_STATUS_OK;
}

static void entry_sanitize(owned_entry* o)
{
    for (int64_t m = 0; m < o->e.n_mats; m++) { o->counts[m] = 1.0; }
    for (int64_t i = 0; i < o->e.n_mats * o->e.n_cols; i++) { o->sum_sq[i] = 1.0; }
}

static int compare_entries(const void* a, const void* b) { return strcmp(((const owned_entry*)a)->e.name, ((const owned_entry*)b)->e.name); }

/* Sort; refuse duplicates; check every number. */
static ht_status finish_entries(ht_statistics* s, bool sanitize, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    qsort(s->entries, (size_t)s->n_entries, sizeof *s->entries, compare_entries);
    for (int64_t i = 0; i < s->n_entries; i++) {
        HT_CHECK(i == 0 || strcmp(s->entries[i - 1].e.name, s->entries[i].e.name) != 0, FORMAT, "two entries are called %s", s->entries[i].e.name);
        if (!sanitize) { HT_TRY(entry_check(&s->entries[i], err)); }
        else if (entry_check(&s->entries[i], NULL) != HT_STATUS_OK) {
            entry_sanitize(&s->entries[i]);
            s->n_sanitized++;
        }
    }
done:
    return st;
}

/* --- reading: GGUF --------------------------------------------------------------------------------------------------------------------- */

/* "blk.0.attn_q.weight.in_sum2" of that suffix -> the name's length, else 0. */
static size_t stem_length(const char* name, const char* suffix)
{
    const size_t n = strlen(name), k = strlen(suffix);
    return n > k + 1 && name[n - k - 1] == '.' && strcmp(name + n - k, suffix) == 0 ? n - k - 1 : 0;
}

static const ht_tensor_info* part_of(const ht_gguf* gguf, const char* name, const char* suffix)
{
    char full[2 * HT_GGUF_MAX_NAME];
    snprintf(full, sizeof full, "%s.%s", name, suffix);
    return ht_gguf_find_tensor(gguf, full);
}

static ht_status read_f32(const ht_gguf* gguf, const ht_tensor_info* t, int64_t n, float** out, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    HT_CHECK(t->type == HT_TYPE_f32, FORMAT, "expected F32, found %s", ht_type_get((uint32_t)t->type)->name);
    HT_CHECK(ht_tensor_n_elems(t) == n, FORMAT, "expected %" PRId64 " values, found %" PRId64, n, ht_tensor_n_elems(t));
    *out = malloc((size_t)n * sizeof **out);
    HT_CHECK(*out, NOMEM, "%" PRId64 " values", n);
    HT_TRY(ht_gguf_read(gguf, t, 0, *out, (uint64_t)n * sizeof **out, err));
done:
    if (st != HT_STATUS_OK) { ht_error_set_tensor(err, t->name); }
    return st;
}

static ht_status read_entry(ht_statistics* s, owned_entry* o, const ht_tensor_info* sums, const char* name, ht_error* err)
{
    ht_status             st     = HT_STATUS_OK;
    float *               values = NULL, *counts = NULL;
    const int64_t         n_cols = sums->ne[0], n_mats = ht_tensor_n_rows(sums);
    const ht_tensor_info* count  = part_of(s->gguf, name, "counts");
    HT_CHECK(count, FORMAT, "%s.counts is missing", name);
    HT_TRY(read_f32(s->gguf, sums, n_cols * n_mats, &values, err));
    HT_TRY(read_f32(s->gguf, count, n_mats, &counts, err));
    HT_TRY(entry_alloc(o, name, n_cols, n_mats, err));
    for (int64_t i = 0; i < n_cols * n_mats; i++) { o->sum_sq[i] = (double)values[i]; }
    for (int64_t i = 0; i < n_mats; i++) { o->counts[i] = (double)counts[i]; }
    const ht_tensor_info* max = part_of(s->gguf, name, "in_max");
    if (max) { HT_TRY(read_f32(s->gguf, max, n_cols, &o->max_abs, err)); }
    o->e.max_abs = o->max_abs;
    for (int role = 0; role < 2; role++) {
        const ht_tensor_info* w = part_of(s->gguf, name, row_weight_suffix[role]);
        if (!w) { continue; }
        HT_CHECK(o->e.n_rows == 0 || o->e.n_rows == ht_tensor_n_elems(w), FORMAT, "%s: row weights of different lengths", name);
        o->e.n_rows = ht_tensor_n_elems(w);
        HT_TRY(read_f32(s->gguf, w, o->e.n_rows, &o->row_weight[role], err));
        for (int64_t r = 0; r < o->e.n_rows; r++) {
            HT_CHECK(isfinite(o->row_weight[role][r]) && o->row_weight[role][r] >= 0.0f, NUMERIC, "%s: weight of row %" PRId64 " is %g", name, r, (double)o->row_weight[role][r]);
        }
        o->e.row_weight[role] = o->row_weight[role];
    }
    for (int k = 0; k < HT_HESSIAN_COUNT; k++) {
        const ht_tensor_info* h = part_of(s->gguf, name, suffixes[k]);
        if (!h) { continue; }
        HT_CHECK(n_mats == 1 && h->type == HT_TYPE_f32 && n_cols <= INT32_MAX && ht_tensor_n_elems(h) == n_cols * (n_cols + 1) / 2, FORMAT,
                 "%s: expected %" PRId64 " F32 values, found %" PRId64, h->name, n_cols * (n_cols + 1) / 2, ht_tensor_n_elems(h));
        o->hessian[k]       = h;
        o->e.has_hessian[k] = true;
    }
done:
    free(values);
    free(counts);
    return st;
}

static ht_status open_gguf(ht_statistics* s, ht_error* err)
{
    ht_status   st   = HT_STATUS_OK;
    const char* type = NULL;
    HT_TRY(ht_gguf_open(&s->gguf, s->path, err));
    HT_TRY(ht_meta_get_string(ht_gguf_meta(s->gguf), "general.type", false, &type, err));
    HT_CHECK(type && strcmp(type, "imatrix") == 0, FORMAT, "this GGUF holds no statistics (general.type is \"%s\", not \"imatrix\")", type ? type : "absent");
    s->entries = calloc((size_t)ht_gguf_n_tensors(s->gguf) + 1, sizeof *s->entries);
    HT_CHECK(s->entries, NOMEM, "statistics");
    for (int64_t i = 0; i < ht_gguf_n_tensors(s->gguf); i++) {
        const ht_tensor_info* t = ht_gguf_tensor_at(s->gguf, i);
        const size_t          n = stem_length(t->name, "in_sum2");
        char                  name[HT_GGUF_MAX_NAME + 1];
        if (n == 0) { continue; }
        snprintf(name, sizeof name, "%.*s", (int)n, t->name);
        HT_TRY(read_entry(s, &s->entries[s->n_entries++], t, name, err));
    }
    HT_CHECK(s->n_entries > 0, FORMAT, "no entries");
done:
    return st;
}

/* --- reading: the old .dat ---------------------------------------------------------------------------------------------------------------- */

typedef struct dat_reader {
    const uint8_t* data;
    size_t         n, at;
} dat_reader;

static ht_status dat_i32(dat_reader* r, int32_t low, int32_t high, const char* what, int32_t* out, ht_error* err)
{
    if (r->n - r->at < 4) { return ht_fail_at(err, HT_STATUS_BOUNDS, r->at, "the file ends before %s", what); }
    memcpy(out, r->data + r->at, 4);
    if (*out < low || *out > high) { return ht_fail_at(err, HT_STATUS_FORMAT, r->at, "%s: %" PRId32 " is not between %" PRId32 " and %" PRId32, what, *out, low, high); }
    r->at += 4;
    return HT_STATUS_OK;
}

static ht_status dat_entry(dat_reader* r, owned_entry* o, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    char      name[HT_GGUF_MAX_NAME + 1];
    int32_t   n_name = 0, n_calls = 0, n_values = 0;
    HT_TRY(dat_i32(r, 1, HT_GGUF_MAX_NAME, "length of a name", &n_name, err));
    HT_CHECK((size_t)n_name <= r->n - r->at, BOUNDS, "the file ends within a name");
    memcpy(name, r->data + r->at, (size_t)n_name);
    name[n_name] = '\0';
    HT_CHECK(!ht_tensor_name_fault(name, (size_t)n_name), FORMAT, "an entry's name is %s", ht_tensor_name_fault(name, (size_t)n_name));
    r->at += (size_t)n_name;
    HT_TRY(dat_i32(r, 0, INT32_MAX, "number of calls", &n_calls, err));
    HT_TRY(dat_i32(r, 1, INT32_MAX, "number of values", &n_values, err));
    HT_CHECK((size_t)n_values <= (r->n - r->at) / 4, BOUNDS, "%s: %" PRId32 " values are more than the file holds", name, n_values);
    HT_TRY(entry_alloc(o, name, n_values, 1, err));
    for (int32_t i = 0; i < n_values; i++) {
        float v;
        memcpy(&v, r->data + r->at + 4 * (size_t)i, 4);
        o->sum_sq[i] = (double)v;
    }
    o->counts[0] = (double)n_calls;
    r->at += 4 * (size_t)n_values;
done:
    return st;
}

static ht_status open_dat(ht_statistics* s, ht_error* err)
{
    ht_status  st   = HT_STATUS_OK;
    ht_file*   file = NULL;
    uint8_t*   data = NULL;
    dat_reader r    = { 0 };
    int32_t    n_entries = 0, n_chunks = 0, n_name = 0;
    HT_TRY(ht_file_open(&file, s->path, err));
    HT_CHECK(ht_file_size(file) <= MAX_DAT_BYTES, BOUNDS, "%" PRIu64 " bytes are too many for an importance matrix", ht_file_size(file));
    r.n  = (size_t)ht_file_size(file);
    data = malloc(r.n + 1);
    HT_CHECK(data, NOMEM, "an importance matrix of %zu bytes", r.n);
    HT_TRY(ht_file_read_at(file, 0, data, r.n, err));
    r.data = data;
    HT_TRY(dat_i32(&r, 1, MAX_ENTRIES, "number of entries", &n_entries, err));
    HT_CHECK((size_t)n_entries <= r.n / 12, FORMAT, "%" PRId32 " entries do not fit %zu bytes: not an importance matrix", n_entries, r.n);
    s->entries = calloc((size_t)n_entries, sizeof *s->entries);
    s->meta    = ht_meta_create();
    HT_CHECK(s->entries && s->meta, NOMEM, "statistics");
    for (int32_t i = 0; i < n_entries; i++) { HT_TRY(dat_entry(&r, &s->entries[s->n_entries++], err)); }
    if (r.at < r.n) { /* the oldest files end here */
        HT_TRY(dat_i32(&r, 0, INT32_MAX, "last chunk", &n_chunks, err));
        HT_TRY(ht_meta_set_u32(s->meta, "imatrix.chunk_count", (uint32_t)n_chunks, err));
    }
    if (r.at < r.n) {
        HT_TRY(dat_i32(&r, 0, MAX_DAT_NAME, "length of the data set's name", &n_name, err));
        HT_CHECK((size_t)n_name <= r.n - r.at, BOUNDS, "the file ends within the data set's name");
        const ht_string dataset = { (const char*)data + r.at, (size_t)n_name };
        HT_TRY(ht_meta_set_strings(s->meta, "imatrix.datasets", true, 1, &dataset, err));
    }
done:
    ht_file_close(file);
    free(data);
    return st;
}

/* --- public --------------------------------------------------------------------------------------------------------------------------------- */

static ht_status is_gguf(const char* path, bool* out, ht_error* err)
{
    ht_file*  file = NULL;
    char      magic[4] = { 0 };
    ht_status st = ht_file_open(&file, path, err);
    if (st == HT_STATUS_OK) { st = ht_file_read_at(file, 0, magic, sizeof magic, err); }
    *out = memcmp(magic, "GGUF", 4) == 0;
    ht_file_close(file);
    return st;
}

ht_status ht_statistics_open(ht_statistics** out, const char* path, bool sanitize, ht_error* err)
{
    ht_status      st   = HT_STATUS_OK;
    bool           gguf = false;
    ht_statistics* s    = calloc(1, sizeof *s);
    HT_CHECK(s, NOMEM, "statistics");
    s->path = strdup(path);
    HT_CHECK(s->path, NOMEM, "statistics");
    HT_TRY(is_gguf(path, &gguf, err));
    HT_TRY(gguf ? open_gguf(s, err) : open_dat(s, err));
    HT_TRY(finish_entries(s, sanitize, err));
    *out = s;
    s    = NULL;
done:
    ht_statistics_close(s);
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    return st;
}

void ht_statistics_close(ht_statistics* s)
{
    if (!s) { return; }
    for (int64_t i = 0; i < s->n_entries; i++) { entry_free(&s->entries[i]); }
    free(s->entries);
    ht_gguf_close(s->gguf);
    ht_meta_free(s->meta);
    free(s->path);
    free(s);
}

const char*                ht_statistics_path(const ht_statistics* s) { return s->path; }
const ht_meta*             ht_statistics_meta(const ht_statistics* s) { return s->gguf ? ht_gguf_meta(s->gguf) : s->meta; }
int64_t                    ht_statistics_n_entries(const ht_statistics* s) { return s->n_entries; }
const ht_statistics_entry* ht_statistics_at(const ht_statistics* s, int64_t index) { return &s->entries[index].e; }
int64_t                    ht_statistics_n_sanitized(const ht_statistics* s) { return s->n_sanitized; }

static owned_entry* find_owned(const ht_statistics* s, const char* name)
{
    owned_entry key;
    snprintf(key.e.name, sizeof key.e.name, "%s", name);
    return s->n_entries > 0 ? bsearch(&key, s->entries, (size_t)s->n_entries, sizeof key, compare_entries) : NULL;
}

const ht_statistics_entry* ht_statistics_find(const ht_statistics* s, const char* name)
{
    const owned_entry* o = find_owned(s, name);
    return o && !o->is_left_out ? &o->e : NULL;
}

int64_t ht_statistics_importance(const ht_statistics_entry* e, int64_t mat, float* importance)
{
    const double count = e->counts[mat];
    int64_t      n_zero = 0;
    for (int64_t i = 0; i < e->n_cols; i++) {
        importance[i] = count > 0.0 ? (float)(e->sum_sq[mat * e->n_cols + i] / count) : 1.0f;
        n_zero += importance[i] == 0.0f;
    }
    return n_zero;
}

ht_status ht_statistics_read_hessian(const ht_statistics* s, const ht_statistics_entry* e, ht_hessian_kind kind, float* out, ht_error* err)
{
    ht_status          st = HT_STATUS_OK;
    const owned_entry* o  = find_owned(s, e->name);
    const int64_t      n  = e->n_cols;
    uint64_t           at = 0;
    HT_CHECK(o && o->hessian[kind], ARG, "%s has no %s", e->name, suffixes[kind]);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t n_bytes = (uint64_t)(n - i) * sizeof(float);
        HT_TRY(ht_gguf_read(s->gguf, o->hessian[kind], at, out + i * n + i, n_bytes, err));
        at += n_bytes;
        for (int64_t j = i; j < n; j++) {
            const float v = out[i * n + j];
            HT_CHECK(isfinite(v) && (j > i || v >= 0.0f), NUMERIC, "the Hessian's value at row %" PRId64 ", column %" PRId64 " is %g", i, j, (double)v);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < i; j++) { out[i * n + j] = out[j * n + i]; }
    }
done:
    if (st != HT_STATUS_OK) {
        ht_error_set_tensor(err, e->name);
        ht_error_set_file(err, s->path);
    }
    return st;
}

/* --- whose statistics are these? ---------------------------------------------------------------------------------------------------------------- */

/* What is wrong with an entry, to `text`; false when nothing is. */
static bool mismatch(const owned_entry* o, const ht_source* source, char* text, size_t n_text)
{
    const ht_statistics_entry* e = &o->e;
    const ht_source_tensor*    t = ht_source_find_tensor(source, e->name);
    if (!t) {
        if (strcmp(e->name, "output.weight") == 0) { return false; } /* a tied model's embedding under its other name */
        snprintf(text, n_text, "%s is not a tensor of the model", e->name);
        return true;
    }
    const int64_t n_mats = t->info.ne[2] * t->info.ne[3], n_rows = ht_tensor_n_rows(&t->info);
    if (e->n_cols == t->info.ne[0] * n_mats && e->n_mats == 1 && n_mats > 1) { return false; } /* .dat: experts behind each other; see split_experts */
    if (e->n_cols != t->info.ne[0]) { snprintf(text, n_text, "%s has %" PRId64 " values, rows are %" PRId64 " long", e->name, e->n_cols, t->info.ne[0]); }
    else if (e->n_mats != n_mats) { snprintf(text, n_text, "%s has %" PRId64 " matrices, the model %" PRId64, e->name, e->n_mats, n_mats); }
    else if (e->n_rows != 0 && e->n_rows != n_rows) { snprintf(text, n_text, "%s has weights of %" PRId64 " rows, the model %" PRId64, e->name, e->n_rows, n_rows); }
    else { return false; }
    return true;
}

/* An old file keeps the experts of a stacked tensor as one long row, counted together. */
static ht_status split_experts(owned_entry* o, const ht_source* source, ht_error* err)
{
    const ht_source_tensor* t = ht_source_find_tensor(source, o->e.name);
    if (!t || t->info.ne[2] <= 1 || o->e.n_mats != 1 || o->e.n_cols != t->info.ne[0] * t->info.ne[2]) { return HT_STATUS_OK; }
    double* counts = malloc((size_t)t->info.ne[2] * sizeof *counts);
    if (!counts) { return ht_fail(err, HT_STATUS_NOMEM, "statistics"); }
    o->e.n_mats = t->info.ne[2];
    o->e.n_cols = t->info.ne[0];
    for (int64_t m = 0; m < o->e.n_mats; m++) {
        double sum = 0.0;
        for (int64_t i = 0; i < o->e.n_cols; i++) { sum += o->sum_sq[m * o->e.n_cols + i]; }
        counts[m] = sum > 0.0 ? o->counts[0] : 0.0;
    }
    free(o->counts);
    o->counts   = counts;
    o->e.counts = counts;
    return HT_STATUS_OK;
}

/* How well the text reached one entry; returns the number of its matrices that no token reached. */
static int64_t warn_entry_coverage(const ht_statistics_entry* e, const ht_ctx* ctx)
{
    int64_t n_idle = 0, n_zero = 0, least = 0;
    double  total = 0.0;
    for (int64_t m = 0; m < e->n_mats; m++) {
        n_idle += e->counts[m] == 0.0;
        total += e->counts[m];
        if (e->counts[m] > 0.0 && (e->counts[least] == 0.0 || e->counts[m] < e->counts[least])) { least = m; }
        for (int64_t k = 0; k < e->n_cols && e->counts[m] > 0.0; k++) { n_zero += e->sum_sq[m * e->n_cols + k] == 0.0; }
    }
    const double mean = total / (double)e->n_mats;
    if (n_idle > 0) { ht_log_warn(&ctx->log, "%s: no token reached %" PRId64 " of %" PRId64 " matrices; they are rounded without importance", e->name, n_idle, e->n_mats); }
    if (e->n_mats > 1 && e->counts[least] > 0.0 && e->counts[least] < 0.05 * mean) {
        ht_log_warn(&ctx->log, "%s: matrix %" PRId64 " was reached by %.0f tokens, %.0f on average: its importance says little", e->name, least, e->counts[least], mean);
    }
    if (n_zero > 0) {
        ht_log_warn(&ctx->log, "%s: %.2f %% of the input columns are zero in all calibration text", e->name, 100.0 * (double)n_zero / (double)(e->n_cols * e->n_mats));
    }
    return n_idle;
}

static ht_status check_coverage(const ht_statistics* s, const ht_source* source, bool strict, const ht_ctx* ctx, ht_error* err)
{
    int64_t n_missing = 0, n_idle = 0;
    for (int64_t i = 0; i < ht_source_n_tensors(source); i++) {
        const ht_tensor_info* t = &ht_source_tensor_at(source, i)->info;
        if (ht_tensor_is_quantizable(t) && !ht_statistics_find(s, t->name) && strcmp(t->name, "token_embd.weight") != 0 && strcmp(t->name, "output.weight") != 0) { n_missing++; }
    }
    if (n_missing > 0) { ht_log_warn(&ctx->log, "%s: no statistics for %" PRId64 " matrices; they are rounded without", s->path, n_missing); }
    for (int64_t i = 0; i < s->n_entries; i++) {
        if (!s->entries[i].is_left_out) { n_idle += warn_entry_coverage(&s->entries[i].e, ctx); }
    }
    if (!strict || n_missing + n_idle == 0) { return HT_STATUS_OK; }
    ht_fail(err, HT_STATUS_ARG, "the statistics do not cover the model: nothing on %" PRId64 " tensors, %" PRId64 " matrices that no token reached (--strict-coverage)", n_missing, n_idle);
    ht_error_set_file(err, s->path);
    return HT_STATUS_ARG;
}

ht_status ht_statistics_check(ht_statistics* s, const ht_source* source, bool ignore, bool strict, const ht_ctx* ctx, ht_error* err)
{
    enum { MAX_TOLD = 8 };
    ht_status st = HT_STATUS_OK;
    char      told[900] = "", text[200];
    int64_t   n_bad = 0;
    for (int64_t i = 0; i < s->n_entries; i++) {
        HT_TRY(split_experts(&s->entries[i], source, err));
        if (!mismatch(&s->entries[i], source, text, sizeof text)) { continue; }
        s->entries[i].is_left_out = ignore;
        n_bad++;
        if (ignore) { ht_log_warn(&ctx->log, "%s: %s; left out", s->path, text); }
        const size_t used = strlen(told);
        if (n_bad <= MAX_TOLD && used + strlen(text) + 3 < sizeof told) { snprintf(told + used, sizeof told - used, "%s%s", used ? "; " : "", text); }
    }
    if (n_bad > 0 && !ignore) {
        st = ht_fail(err, HT_STATUS_ARG, "the statistics are not of this model: %" PRId64 " of %" PRId64 " entries do not fit (--ignore-mismatch leaves them out): %s", n_bad, s->n_entries, told);
        ht_error_set_file(err, s->path);
        goto done;
    }
    HT_TRY(check_coverage(s, source, strict, ctx, err));
done:
    return st;
}

/* --- writing ------------------------------------------------------------------------------------------------------------------------------------- */

struct ht_statistics_writer {
    ht_out_file*    file;
    ht_meta*        meta;
    ht_tensor_info* tensors;
    bool*           is_put;
    int64_t         n_tensors;
    uint64_t        n_header;
    ht_name_map*    index;
};

static ht_status add_tensor(ht_statistics_writer* w, const char* name, const char* suffix, int64_t ne0, int64_t ne1, ht_error* err)
{
    ht_status       st = HT_STATUS_OK;
    ht_tensor_info* t  = &w->tensors[w->n_tensors];
    *t = (ht_tensor_info){ .type = HT_TYPE_f32, .n_dims = ne1 > 1 || strcmp(suffix, "counts") == 0 ? 2 : 1, .ne = { ne0, ne1, 1, 1 } };
    HT_CHECK(snprintf(t->name, sizeof t->name, "%s.%s", name, suffix) < (int)sizeof t->name, ARG, "%s.%s is longer than %d characters", name, suffix, HT_GGUF_MAX_NAME);
    HT_CHECK(ht_name_map_add(w->index, t->name, strlen(t->name), w->n_tensors) == w->n_tensors, ARG, "two entries are called %s", name);
    w->n_tensors++;
done:
    return st;
}

static int compare_shapes(const void* a, const void* b) { return strcmp(((const ht_statistics_shape*)a)->name, ((const ht_statistics_shape*)b)->name); }

static ht_status declare(ht_statistics_writer* w, const ht_statistics_shape* s, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    HT_TRY(add_tensor(w, s->name, "in_sum2", s->n_cols, s->n_mats, err));
    HT_TRY(add_tensor(w, s->name, "counts", 1, s->n_mats, err));
    if (s->has_max) { HT_TRY(add_tensor(w, s->name, "in_max", s->n_cols, 1, err)); }
    for (int role = 0; role < 2; role++) {
        if (s->has_row_weight[role]) { HT_TRY(add_tensor(w, s->name, row_weight_suffix[role], s->n_rows, 1, err)); }
    }
    for (int k = 0; k < HT_HESSIAN_COUNT; k++) {
        if (s->hessians >> k & 1) { HT_TRY(add_tensor(w, s->name, suffixes[k], s->n_cols * (s->n_cols + 1) / 2, 1, err)); }
    }
done:
    return st;
}

ht_status ht_statistics_writer_create(ht_statistics_writer** out, const char* path, const ht_meta* meta, const ht_statistics_shape* shapes,
                                      int64_t n_shapes, bool force, ht_error* err)
{
    ht_status             st      = HT_STATUS_OK;
    void*                 header  = NULL;
    size_t                n_header = 0;
    uint64_t              n_file  = 0;
    ht_statistics_shape*  sorted  = malloc(((size_t)n_shapes + 1) * sizeof *sorted);
    ht_statistics_writer* w       = calloc(1, sizeof *w);
    const size_t          n_most  = (size_t)n_shapes * (5 + HT_HESSIAN_COUNT) + 1;
    HT_CHECK(w && sorted, NOMEM, "statistics");
    w->tensors = calloc(n_most, sizeof *w->tensors);
    w->is_put  = calloc(n_most, sizeof *w->is_put);
    w->index   = ht_name_map_create();
    HT_CHECK(w->tensors && w->is_put && w->index, NOMEM, "statistics");
    memcpy(sorted, shapes, (size_t)n_shapes * sizeof *sorted);
    qsort(sorted, (size_t)n_shapes, sizeof *sorted, compare_shapes);
    for (int64_t i = 0; i < n_shapes; i++) { HT_TRY(declare(w, &sorted[i], err)); }
    HT_TRY(ht_meta_clone(&w->meta, meta, err));
    HT_TRY(ht_meta_set_string(w->meta, "general.type", "imatrix", err));
    HT_TRY(ht_gguf_layout(w->meta, w->tensors, w->n_tensors, &header, &n_header, &n_file, err));
    w->n_header = n_header;
    HT_TRY(ht_out_file_create(&w->file, path, n_file, force, err));
    HT_TRY(ht_out_file_write_at(w->file, 0, header, n_header, err));
    if (w->n_tensors > 0) { /* the padding at the end, so that the size is right whatever is written last */
        const ht_tensor_info* last = &w->tensors[w->n_tensors - 1];
        const uint64_t        end  = n_header + last->offset_bytes + last->n_bytes;
        const char            zeros[HT_GGUF_DEFAULT_ALIGNMENT] = { 0 };
        if (n_file > end && n_file - end <= sizeof zeros) { HT_TRY(ht_out_file_write_at(w->file, end, zeros, (size_t)(n_file - end), err)); }
    }
    *out = w;
    w    = NULL;
done:
    ht_statistics_writer_discard(w);
    free(sorted);
    free(header);
    return st;
}

/* The declared tensor name.suffix, of n values. */
static ht_status find_declared(ht_statistics_writer* w, const char* name, const char* suffix, const ht_tensor_info** out, ht_error* err)
{
    char full[2 * HT_GGUF_MAX_NAME];
    snprintf(full, sizeof full, "%s.%s", name, suffix);
    const int64_t i = ht_name_map_find(w->index, full, strlen(full));
    if (i < 0) { return ht_fail(err, HT_STATUS_ARG, "%s was not declared", full); }
    w->is_put[i] = true;
    *out         = &w->tensors[i];
    return HT_STATUS_OK;
}

static ht_status put_f32(ht_statistics_writer* w, const char* name, const char* suffix, const float* values, ht_error* err)
{
    const ht_tensor_info* t  = NULL;
    const ht_status       st = find_declared(w, name, suffix, &t, err);
    return st != HT_STATUS_OK ? st : ht_out_file_write_at(w->file, w->n_header + t->offset_bytes, values, t->n_bytes, err);
}

static ht_status put_f64(ht_statistics_writer* w, const char* name, const char* suffix, const double* values, ht_error* err)
{
    ht_status             st = HT_STATUS_OK;
    const ht_tensor_info* t  = NULL;
    float*                narrow = NULL;
    HT_TRY(find_declared(w, name, suffix, &t, err));
    narrow = malloc(t->n_bytes);
    HT_CHECK(narrow, NOMEM, "statistics of %s", name);
    for (int64_t i = 0; i < ht_tensor_n_elems(t); i++) { narrow[i] = (float)values[i]; }
    HT_TRY(ht_out_file_write_at(w->file, w->n_header + t->offset_bytes, narrow, t->n_bytes, err));
done:
    free(narrow);
    return st;
}

ht_status ht_statistics_writer_put_sums(ht_statistics_writer* w, const char* name, const double* sum_sq, const double* counts, ht_error* err)
{
    const ht_status st = put_f64(w, name, "in_sum2", sum_sq, err);
    return st != HT_STATUS_OK ? st : put_f64(w, name, "counts", counts, err);
}

ht_status ht_statistics_writer_put_max(ht_statistics_writer* w, const char* name, const float* max_abs, ht_error* err) { return put_f32(w, name, "in_max", max_abs, err); }

ht_status ht_statistics_writer_put_row_weight(ht_statistics_writer* w, const char* name, int role, const float* row_weight, ht_error* err)
{
    return put_f32(w, name, row_weight_suffix[role], row_weight, err);
}

ht_status ht_statistics_writer_put_hessian(ht_statistics_writer* w, const char* name, ht_hessian_kind kind, const double* hessian, double scale, ht_error* err)
{
    ht_status             st = HT_STATUS_OK;
    const ht_tensor_info* t  = NULL;
    float*                packed = NULL;
    int64_t               n = 0, at = 0;
    HT_TRY(find_declared(w, name, suffixes[kind], &t, err));
    while (n * (n + 1) / 2 < t->ne[0]) { n++; }
    packed = malloc(t->n_bytes);
    HT_CHECK(packed, NOMEM, "the Hessian of %s", name);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = i; j < n; j++) { packed[at++] = (float)(hessian[i * n + j] * scale); }
    }
    HT_TRY(ht_out_file_write_at(w->file, w->n_header + t->offset_bytes, packed, t->n_bytes, err));
done:
    free(packed);
    return st;
}

ht_status ht_statistics_writer_finish(ht_statistics_writer* w, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    for (int64_t i = 0; i < w->n_tensors; i++) { HT_CHECK(w->is_put[i], ARG, "%s was declared and never put", w->tensors[i].name); }
    ht_out_file* file = w->file;
    w->file           = NULL; /* commit frees it either way */
    HT_TRY(ht_out_file_commit(file, err));
done:
    ht_statistics_writer_discard(w);
    return st;
}

void ht_statistics_writer_discard(ht_statistics_writer* w)
{
    if (!w) { return; }
    ht_out_file_discard(w->file);
    ht_meta_free(w->meta);
    ht_name_map_free(w->index);
    free(w->tensors);
    free(w->is_put);
    free(w);
}

/* --- merging --------------------------------------------------------------------------------------------------------------------------------------- */

static ht_status merge_entry(ht_statistics* into, const ht_statistics* file, const ht_statistics_entry* e, ht_error* err)
{
    ht_status    st = HT_STATUS_OK;
    owned_entry* o  = NULL;
    for (int64_t i = 0; i < into->n_entries && !o; i++) {
        if (strcmp(into->entries[i].e.name, e->name) == 0) { o = &into->entries[i]; }
    }
    if (!o) {
        o = &into->entries[into->n_entries++];
        HT_TRY(entry_alloc(o, e->name, e->n_cols, e->n_mats, err));
    }
    HT_CHECK(o->e.n_cols == e->n_cols && o->e.n_mats == e->n_mats, ARG, "%s: %" PRId64 " x %" PRId64 " values in %s, %" PRId64 " x %" PRId64 " in an earlier file", e->name, e->n_cols,
             e->n_mats, file->path, o->e.n_cols, o->e.n_mats);
    for (int64_t i = 0; i < e->n_cols * e->n_mats; i++) { o->sum_sq[i] += e->sum_sq[i]; }
    for (int64_t m = 0; m < e->n_mats; m++) { o->counts[m] += e->counts[m]; }
done:
    return st;
}

static ht_status write_dat(const ht_statistics* s, const char* path, uint32_t n_chunks, const char* dataset, bool force, ht_error* err)
{
    ht_status    st   = HT_STATUS_OK;
    char*        data = NULL;
    size_t       n    = 0;
    ht_out_file* file = NULL;
    FILE*        f    = open_memstream(&data, &n);
    HT_CHECK(f, NOMEM, "importance matrix");
    const int32_t n_entries = (int32_t)s->n_entries, chunks = (int32_t)n_chunks, n_dataset = (int32_t)strlen(dataset);
    fwrite(&n_entries, 4, 1, f);
    for (int64_t i = 0; i < s->n_entries; i++) {
        const ht_statistics_entry* e = &s->entries[i].e;
        double                     most = 0.0;
        for (int64_t m = 0; m < e->n_mats; m++) { most = e->counts[m] > most ? e->counts[m] : most; }
        const int32_t n_name = (int32_t)strlen(e->name), n_calls = (int32_t)most, n_values = (int32_t)(e->n_cols * e->n_mats);
        fwrite(&n_name, 4, 1, f);
        fwrite(e->name, 1, (size_t)n_name, f);
        fwrite(&n_calls, 4, 1, f);
        fwrite(&n_values, 4, 1, f);
        for (int64_t k = 0; k < n_values; k++) { /* one count for all matrices: scale each to it */
            const double count = e->counts[k / e->n_cols];
            const float  v     = count > 0.0 ? (float)(e->sum_sq[k] / count * (double)n_calls) : 0.0f;
            fwrite(&v, 4, 1, f);
        }
    }
    fwrite(&chunks, 4, 1, f);
    fwrite(&n_dataset, 4, 1, f);
    fwrite(dataset, 1, (size_t)n_dataset, f);
    HT_CHECK(fclose(f) == 0, NOMEM, "importance matrix");
    HT_TRY(ht_out_file_create(&file, path, n, force, err));
    HT_TRY(ht_out_file_write_at(file, 0, data, n, err));
    ht_out_file* whole = file;
    file               = NULL;
    HT_TRY(ht_out_file_commit(whole, err));
done:
    ht_out_file_discard(file);
    free(data);
    return st;
}

static ht_status write_importance(const ht_statistics* s, const char* path, bool force, ht_error* err)
{
    ht_status             st = HT_STATUS_OK;
    ht_statistics_writer* w  = NULL;
    ht_statistics_shape*  shapes = calloc((size_t)s->n_entries + 1, sizeof *shapes);
    HT_CHECK(shapes, NOMEM, "importance matrix");
    for (int64_t i = 0; i < s->n_entries; i++) {
        const ht_statistics_entry* e = &s->entries[i].e;
        snprintf(shapes[i].name, sizeof shapes[i].name, "%s", e->name);
        shapes[i].n_cols = e->n_cols;
        shapes[i].n_mats = e->n_mats;
    }
    HT_TRY(ht_statistics_writer_create(&w, path, s->meta, shapes, s->n_entries, force, err));
    for (int64_t i = 0; i < s->n_entries; i++) { HT_TRY(ht_statistics_writer_put_sums(w, s->entries[i].e.name, s->entries[i].sum_sq, s->entries[i].counts, err)); }
    ht_statistics_writer* whole = w;
    w                           = NULL;
    HT_TRY(ht_statistics_writer_finish(whole, err));
done:
    ht_statistics_writer_discard(w);
    free(shapes);
    return st;
}

ht_status ht_statistics_merge(const ht_statistics* const* files, int n_files, const char* path, bool force, ht_error* err)
{
    ht_status      st       = HT_STATUS_OK;
    int64_t        n_most   = 0;
    uint64_t       n_sets   = 0, n_sets_most = 0;
    uint32_t       n_chunks = 0, chunk_size = 0;
    ht_string*     sets     = NULL;
    ht_statistics* s        = calloc(1, sizeof *s);
    HT_CHECK(s, NOMEM, "importance matrix");
    for (int k = 0; k < n_files; k++) {
        const ht_meta_kv* kv = ht_meta_find(ht_statistics_meta(files[k]), "imatrix.datasets");
        n_most += files[k]->n_entries;
        n_sets_most += kv && kv->strings ? kv->n_values : 0;
    }
    s->entries = calloc((size_t)n_most + 1, sizeof *s->entries);
    s->meta    = ht_meta_create();
    sets       = calloc((size_t)n_sets_most + 1, sizeof *sets);
    HT_CHECK(s->entries && s->meta && sets, NOMEM, "importance matrix");
    for (int k = 0; k < n_files; k++) {
        const ht_meta*    meta   = ht_statistics_meta(files[k]);
        const ht_meta_kv* kv     = ht_meta_find(meta, "imatrix.datasets");
        uint32_t          chunks = 0;
        for (int64_t i = 0; i < files[k]->n_entries; i++) { HT_TRY(merge_entry(s, files[k], &files[k]->entries[i].e, err)); }
        HT_TRY(ht_meta_get_u32(meta, "imatrix.chunk_count", false, &chunks, err));
        HT_TRY(ht_meta_get_u32(meta, "imatrix.chunk_size", false, &chunk_size, err));
        n_chunks += chunks;
        for (uint64_t i = 0; kv && kv->strings && i < kv->n_values; i++) { sets[n_sets++] = kv->strings[i]; }
    }
    qsort(s->entries, (size_t)s->n_entries, sizeof *s->entries, compare_entries);
    HT_TRY(ht_meta_set_strings(s->meta, "imatrix.datasets", true, n_sets, sets, err));
    HT_TRY(ht_meta_set_u32(s->meta, "imatrix.chunk_count", n_chunks, err));
    HT_TRY(ht_meta_set_u32(s->meta, "imatrix.chunk_size", chunk_size, err));
    const size_t n_path = strlen(path);
    if (n_path > 4 && strcmp(path + n_path - 4, ".dat") == 0) { HT_TRY(write_dat(s, path, n_chunks, n_sets > 0 ? sets[0].data : "", force, err)); }
    else { HT_TRY(write_importance(s, path, force, err)); }
done:
    ht_statistics_close(s);
    free(sets);
    return st;
}
