/*
 * A Hugging Face checkpoint as a source: the family's table turns names, order of rows and keys into those of a GGUF.
 *
 * Types of the view, after the stock converter: matrices keep f32, f16 and bf16; FP8 becomes bf16 (values times scales), f64 becomes f32; vectors
 * are f32 whatever the checkpoint has, as runtimes want them. Raw bytes exist where the stored type is the type of the view.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/arch.h"
#include "formats/config_import.h"
#include "formats/hf_quantized.h"
#include "formats/hf_tokenizer.h"
#include "formats/source_impl.h"

/* Where the rows of a tensor come from. */
typedef struct backing {
    const ht_hf_tensor* weight;     /* NULL: the rope factors                                           */
    int64_t             head_elems; /* rows (of a vector: elements) per head to interleave; 0: as is    */
    ht_fp8_scale        scale;      /* scale.tensor NULL: none                                          */
} backing;

typedef struct hf_source {
    ht_hf_checkpoint* checkpoint;
    ht_file*          config_file; /* for the hash */
    const ht_arch*    arch;
    int64_t           sizes[HT_SIZE_COUNT];
    backing*          backings;    /* one per tensor of the source                       */
    int64_t           n_backings;
    bool*             used;        /* one per tensor of the checkpoint: it has been placed */
    float*            rope_factors;
} hf_source;

static void hf_close(void* self)
{
    hf_source* h = self;
    ht_hf_checkpoint_close(h->checkpoint);
    ht_file_close(h->config_file);
    free(h->backings);
    free(h->used);
    free(h->rope_factors);
    free(h);
}

/* --- reading ------------------------------------------------------------------------------------------------------------------------ */

/* HF's row for a row of the view: (head, pair, side) <- (head, side, pair). */
static int64_t stored_row(int64_t head_elems, int64_t row)
{
    if (head_elems == 0) { return row; }
    const int64_t in_head = row % head_elems;
    return row - in_head + in_head % 2 * (head_elems / 2) + in_head / 2;
}

static int64_t n_cols_of(const ht_st_tensor* t) { return t->n_dims > 0 ? t->shape[t->n_dims - 1] : 1; }

static bool is_vector(const ht_st_tensor* t) { return t->n_dims < 2; }

/* Interleave the elements of a vector in place. */
static ht_status interleave_vector(void* data, size_t n_each, int64_t head_elems, int64_t n_elems, ht_error* err)
{
    uint8_t* copy = malloc((size_t)n_elems * n_each);
    if (!copy) { return ht_fail(err, HT_STATUS_NOMEM, "vector of %" PRId64, n_elems); }
    memcpy(copy, data, (size_t)n_elems * n_each);
    for (int64_t i = 0; i < n_elems; i++) { memcpy((uint8_t*)data + (size_t)i * n_each, copy + (size_t)stored_row(head_elems, i) * n_each, n_each); }
    free(copy);
    return HT_STATUS_OK;
}

static ht_status hf_read_f32(const void* self, int64_t index, int64_t row, int64_t n_rows, float* out, ht_error* err)
{
    ht_status      st = HT_STATUS_OK;
    const hf_source* h = self;
    const backing* b  = &h->backings[index];
    if (!b->weight) {
        memcpy(out, h->rope_factors, (size_t)(n_rows * (h->sizes[HT_SIZE_HEAD] / 2)) * sizeof *out);
        return HT_STATUS_OK;
    }
    const ht_st_tensor* t      = b->weight->tensor;
    const int64_t       n_cols = n_cols_of(t);
    if (is_vector(t) || (b->head_elems == 0 && !b->scale.tensor)) {
        HT_TRY(ht_safetensors_read_f32(b->weight->file, t, row * n_cols, n_rows * n_cols, out, err));
        if (b->head_elems > 0 && n_rows > 0) { HT_TRY(interleave_vector(out, sizeof *out, b->head_elems, n_cols, err)); }
        goto done;
    }
    for (int64_t r = row; r < row + n_rows; r++, out += n_cols) {
        const int64_t from = stored_row(b->head_elems, r);
        HT_TRY(ht_safetensors_read_f32(b->weight->file, t, from * n_cols, n_cols, out, err));
        if (b->scale.tensor) { HT_TRY(ht_fp8_scale_apply(&b->scale, from, out, n_cols, err)); }
    }
done:
    return st;
}

static ht_type view_type(const ht_st_tensor* t)
{
    if (is_vector(t) || t->dtype == HT_DTYPE_F32 || t->dtype == HT_DTYPE_F64) { return HT_TYPE_f32; }
    return t->dtype == HT_DTYPE_F16 ? HT_TYPE_f16 : HT_TYPE_bf16;
}

static bool stored_as(const ht_st_tensor* t, ht_type type)
{
    return (t->dtype == HT_DTYPE_F32 && type == HT_TYPE_f32) || (t->dtype == HT_DTYPE_F16 && type == HT_TYPE_f16) ||
           (t->dtype == HT_DTYPE_BF16 && type == HT_TYPE_bf16);
}

static bool hf_has_raw(const void* self, int64_t index)
{
    const backing* b = &((const hf_source*)self)->backings[index];
    return !b->weight || (stored_as(b->weight->tensor, view_type(b->weight->tensor)) && !b->scale.tensor);
}

static ht_status hf_read_raw(const void* self, int64_t index, int64_t row, int64_t n_rows, void* out, ht_error* err)
{
    ht_status           st = HT_STATUS_OK;
    const backing*      b  = &((const hf_source*)self)->backings[index];
    if (!b->weight) { return hf_read_f32(self, index, row, n_rows, out, err); }
    const ht_st_tensor* t      = b->weight->tensor;
    const int64_t       n_cols = n_cols_of(t);
    const size_t        n_each = (size_t)ht_dtype_bytes(t->dtype);
    if (is_vector(t) || b->head_elems == 0) {
        HT_TRY(ht_safetensors_read_raw(b->weight->file, t, row * n_cols, n_rows * n_cols, out, err));
        if (b->head_elems > 0 && n_rows > 0) { HT_TRY(interleave_vector(out, n_each, b->head_elems, n_cols, err)); }
        goto done;
    }
    for (int64_t r = 0; r < n_rows; r++) {
        uint8_t* to = (uint8_t*)out + (size_t)(r * n_cols) * n_each;
        HT_TRY(ht_safetensors_read_raw(b->weight->file, t, stored_row(b->head_elems, row + r) * n_cols, n_cols, to, err));
    }
done:
    return st;
}

static bool hf_file_at(const void* self, int64_t index, const ht_file** file, uint64_t* n_header)
{
    const hf_source* h       = self;
    const int64_t    n_files = ht_hf_checkpoint_n_files(h->checkpoint);
    if (index > n_files) { return false; }
    *file     = index < n_files ? ht_safetensors_file(ht_hf_checkpoint_file_at(h->checkpoint, index)) : h->config_file;
    *n_header = index < n_files ? ht_safetensors_n_header(ht_hf_checkpoint_file_at(h->checkpoint, index)) : ht_file_size(h->config_file);
    return true;
}

static const ht_source_ops hf_ops = { "hf", hf_close, hf_read_f32, hf_has_raw, hf_read_raw, hf_file_at };

/* --- placing tensors ---------------------------------------------------------------------------------------------------------------- */

/* Names for a message: the first few of what may be hundreds. */
typedef struct name_list {
    char   text[360];
    size_t used;
    int    n, n_shown;
} name_list;

static void list_add(name_list* list, const char* name)
{
    enum { N_SHOWN = 6 };
    if (list->n++ >= N_SHOWN) { return; }
    const int n = snprintf(list->text + list->used, sizeof list->text - list->used, "%s%s", list->n_shown ? ", " : "", name);
    if (n > 0 && (size_t)n < sizeof list->text - list->used) { list->used += (size_t)n, list->n_shown++; }
    else { list->text[list->used] = '\0'; }
}

/* " and 12 more" */
static const char* list_rest(const name_list* list, char* buf, size_t n_buf)
{
    buf[0] = '\0';
    if (list->n > list->n_shown) { snprintf(buf, n_buf, " and %d more", list->n - list->n_shown); }
    return buf;
}

static ht_status check_shape(const ht_arch_tensor* row, const ht_st_tensor* t, const int64_t* sizes, ht_error* err)
{
    ht_status     st        = HT_STATUS_OK;
    const int     n_dims    = row->cols == HT_SIZE_NONE ? 1 : 2;
    const int64_t want_rows = sizes[row->rows], want_cols = sizes[row->cols];
    HT_CHECK(t->n_dims == n_dims, FORMAT, "%d dimensions, expected %d", t->n_dims, n_dims);
    HT_CHECK(ht_dtype_is_float(t->dtype) && t->dtype != HT_DTYPE_F8_E8M0, FORMAT, "dtype %s, expected floating-point weights", ht_dtype_name(t->dtype));
    HT_CHECK(t->shape[0] == want_rows, FORMAT, "%" PRId64 " rows, expected %" PRId64 " (%s)", t->shape[0], want_rows, ht_size_name(row->rows));
    HT_CHECK(n_dims == 1 || t->shape[1] == want_cols, FORMAT, "rows of %" PRId64 ", expected %" PRId64 " (%s)", t->shape[1], want_cols,
             ht_size_name(row->cols));
done:
    return st;
}

static ht_status add_backing(hf_source* h, backing b, ht_error* err)
{
    backing* grown = realloc(h->backings, (size_t)(h->n_backings + 1) * sizeof *grown);
    if (!grown) { return ht_fail(err, HT_STATUS_NOMEM, "tensor table"); }
    h->backings                  = grown;
    h->backings[h->n_backings++] = b;
    return HT_STATUS_OK;
}

static void mark_used(hf_source* h, const ht_hf_tensor* t) { h->used[t - ht_hf_checkpoint_tensor_at(h->checkpoint, 0)] = true; }

static const char* transform_name(const backing* b)
{
    const ht_st_tensor* t = b->weight->tensor;
    if (b->scale.tensor) { return b->head_elems > 0 ? "fp8-dequant, permute" : "fp8-dequant"; }
    if (b->head_elems > 0) { return "permute"; }
    return stored_as(t, view_type(t)) ? "copy" : "convert";
}

static ht_status place_tensor(ht_source* source, const ht_arch_tensor* row, const ht_hf_tensor* found, const char* gguf_name, ht_error* err)
{
    ht_status           st = HT_STATUS_OK;
    hf_source*          h  = source->self;
    const ht_st_tensor* t  = found->tensor;
    backing             b  = { found, row->order == HT_ROW_ORDER_AS_IS ? 0 : h->sizes[HT_SIZE_HEAD], { NULL, 1, 1, 1 } };
    HT_TRY(check_shape(row, t, h->sizes, err));
    if (t->dtype == HT_DTYPE_F8_E4M3 || t->dtype == HT_DTYPE_F8_E5M2) { HT_TRY(ht_fp8_scale_find(&b.scale, h->checkpoint, found, err)); }
    mark_used(h, found);
    if (b.scale.tensor) { mark_used(h, b.scale.tensor); }
    ht_tensor_info info = { .type = view_type(t), .n_dims = t->n_dims, .ne = { n_cols_of(t), t->n_dims == 2 ? t->shape[0] : 1, 1, 1 } };
    snprintf(info.name, sizeof info.name, "%s", gguf_name);
    HT_TRY(add_backing(h, b, err));
    HT_TRY(ht_source_add_tensor(source, &info, t->name, transform_name(&b), err));
done:
    if (st != HT_STATUS_OK) { ht_error_set_tensor(err, t->name), ht_error_set_file(err, ht_file_path(ht_safetensors_file(found->file))); }
    return st;
}

static ht_status place_rope_factors(ht_source* source, ht_error* err)
{
    ht_status      st   = HT_STATUS_OK;
    hf_source*     h    = source->self;
    ht_tensor_info info = { .name = "rope_freqs.weight", .type = HT_TYPE_f32, .n_dims = 1, .ne = { h->sizes[HT_SIZE_HEAD] / 2, 1, 1, 1 } };
    HT_TRY(add_backing(h, (backing){ NULL, 0, { NULL, 1, 1, 1 } }, err));
    HT_TRY(ht_source_add_tensor(source, &info, "(computed)", "computed", err));
done:
    return st;
}

/* Equal bytes? Reads both tensors: the only place where opening a source looks at weights, and only for checkpoints that keep a tied head. */
static ht_status same_bytes(bool* same, const ht_hf_tensor* a, const ht_hf_tensor* b, ht_error* err)
{
    enum { PIECE = 1 << 19 };
    ht_status st     = HT_STATUS_OK;
    char*     pieces = malloc(2 * (size_t)PIECE);
    *same = a->tensor->dtype == b->tensor->dtype && a->tensor->n_bytes == b->tensor->n_bytes;
    HT_CHECK(pieces, NOMEM, "comparison of the tied head");
    for (uint64_t at = 0; *same && at < a->tensor->n_bytes; at += PIECE) {
        const size_t n = a->tensor->n_bytes - at < PIECE ? (size_t)(a->tensor->n_bytes - at) : PIECE;
        HT_TRY(ht_file_read_at(ht_safetensors_file(a->file), a->tensor->offset_bytes + at, pieces, n, err));
        HT_TRY(ht_file_read_at(ht_safetensors_file(b->file), b->tensor->offset_bytes + at, pieces + PIECE, n, err));
        *same = memcmp(pieces, pieces + PIECE, n) == 0;
    }
done:
    free(pieces);
    return st;
}

/*
 * The output matrix and "tie_word_embeddings": a redundant copy is dropped, a different one kept and reported, a missing one is an error only
 * when the configuration says that there is one.
 */
static ht_status decide_head(bool* keep, hf_source* h, const ht_hf_tensor* head, const ht_hf_tensor* embd, const ht_log* log, ht_error* err)
{
    ht_status      st     = HT_STATUS_OK;
    const ht_json* config = ht_hf_checkpoint_config(h->checkpoint);
    const bool     given  = ht_json_kind_of(ht_json_member(ht_json_root(config), "tie_word_embeddings")) == HT_JSON_KIND_BOOL;
    bool           tied   = false, same = false;
    HT_TRY(ht_json_get_bool(config, ht_json_root(config), "tie_word_embeddings", false, &tied, err));
    HT_CHECK(head || tied || !given, FORMAT, "missing tensor lm_head.weight: tie_word_embeddings is false");
    *keep = head != NULL;
    if (!head || !tied) { goto done; }
    HT_TRY(same_bytes(&same, head, embd, err));
    *keep = !same;
    if (same) { mark_used(h, head); }
    if (same) { ht_log_info(log, "%s equals %s and is left out", head->tensor->name, embd->tensor->name); }
    else { ht_log_warn(log, "tie_word_embeddings is true, but %s differs from %s: it is kept", head->tensor->name, embd->tensor->name); }
done:
    return st;
}

static ht_status place_row(ht_source* source, const ht_arch_tensor* row, int layer, const ht_hf_tensor* embd, name_list* missing, const ht_log* log,
                           ht_error* err)
{
    ht_status  st   = HT_STATUS_OK;
    hf_source* h    = source->self;
    bool       keep = true;
    char       hf_name[128], gguf_name[HT_GGUF_MAX_NAME + 1];
    const char* layer_at = strstr(row->hf, "%d");
    if (layer_at) {
        const char* gguf_at = strstr(row->gguf, "%d");
        snprintf(hf_name, sizeof hf_name, "%.*s%d%s", (int)(layer_at - row->hf), row->hf, layer, layer_at + 2);
        snprintf(gguf_name, sizeof gguf_name, "%.*s%d%s", (int)(gguf_at - row->gguf), row->gguf, layer, gguf_at + 2);
    } else {
        snprintf(hf_name, sizeof hf_name, "%s", row->hf);
        snprintf(gguf_name, sizeof gguf_name, "%s", row->gguf);
    }
    const ht_hf_tensor* found = ht_hf_checkpoint_find(h->checkpoint, hf_name);
    if (strcmp(gguf_name, "output.weight") == 0) { HT_TRY(decide_head(&keep, h, found, embd, log, err)); }
    if (found && keep) { HT_TRY(place_tensor(source, row, found, gguf_name, err)); }
    else if (!found && !row->optional) { list_add(missing, hf_name); }
done:
    return st;
}

static bool ends_with_any(const char* name, const char* const* endings)
{
    const size_t n = strlen(name);
    for (; endings && *endings; endings++) {
        const size_t n_ending = strlen(*endings);
        if (n >= n_ending && strcmp(name + n - n_ending, *endings) == 0) { return true; }
    }
    return false;
}

/* Tensors that no row asked for: known ballast goes, what cannot be weights goes with a warning, the rest is an error. */
static ht_status check_left_over(const hf_source* h, const name_list* missing, const ht_log* log, ht_error* err)
{
    ht_status st      = HT_STATUS_OK;
    name_list unknown = { .n = 0 };
    char      rest[2][32];
    for (int64_t i = 0; i < ht_hf_checkpoint_n_tensors(h->checkpoint); i++) {
        const ht_st_tensor* t = ht_hf_checkpoint_tensor_at(h->checkpoint, i)->tensor;
        if (h->used[i]) { continue; }
        if (ends_with_any(t->name, ht_arch_common_dropped) || ends_with_any(t->name, h->arch->dropped) || ht_fp8_is_activation_scale(t->name)) {
            ht_log_info(log, "%s is not needed and left out", t->name);
        } else if (t->n_elems == 0 || t->n_dims == 0) {
            ht_log_warn(log, "%s %s: left out", t->name, t->n_elems == 0 ? "has no elements" : "is a single number");
        } else if (!ht_dtype_is_float(t->dtype)) {
            ht_log_warn(log, "%s has integers (%s), not weights: left out", t->name, ht_dtype_name(t->dtype));
        } else {
            list_add(&unknown, t->name);
        }
    }
    list_rest(missing, rest[0], sizeof rest[0]);
    list_rest(&unknown, rest[1], sizeof rest[1]);
    HT_CHECK(missing->n == 0, FORMAT, "missing tensor%s %.200s%s%s%.160s%s", missing->n > 1 ? "s" : "", missing->text, rest[0],
             unknown.n ? "; unknown to this family: " : "", unknown.text, unknown.n ? rest[1] : "");
    HT_CHECK(unknown.n == 0, UNSUPPORTED, "%d tensor%s unknown to family %s: %s%s", unknown.n, unknown.n > 1 ? "s" : "", h->arch->name, unknown.text,
             rest[1]);
done:
    return st;
}

static ht_status place_all(ht_source* source, const ht_hf_tensor* embd, const ht_log* log, ht_error* err)
{
    ht_status             st      = HT_STATUS_OK;
    hf_source*            h       = source->self;
    name_list             missing = { .n = 0 };
    const ht_arch_tensor* row     = h->arch->tensors;
    if (h->rope_factors) { HT_TRY(place_rope_factors(source, err)); }
    while (row->hf) {
        const ht_arch_tensor* end = row + 1;
        if (!strstr(row->hf, "%d")) { HT_TRY(place_row(source, row, 0, embd, &missing, log, err)); }
        else {
            while (end->hf && strstr(end->hf, "%d")) { end++; }
            for (int layer = 0; layer < (int)h->sizes[HT_SIZE_LAYERS]; layer++) {
                for (const ht_arch_tensor* r = row; r < end; r++) { HT_TRY(place_row(source, r, layer, embd, &missing, log, err)); }
            }
        }
        row = end;
    }
    HT_TRY(check_left_over(h, &missing, log, err));
done:
    return st;
}

/* --- opening ------------------------------------------------------------------------------------------------------------------------ */

/* Its rows are the vocabulary: GGUF runtimes take the number of tokens from the token list and check the tensor against it. */
static ht_status find_embedding(hf_source* h, const ht_hf_tensor** out, const ht_log* log, ht_error* err)
{
    ht_status      st         = HT_STATUS_OK;
    const ht_json* config     = ht_hf_checkpoint_config(h->checkpoint);
    int64_t        vocab_size = -1;
    const char*    name       = h->arch->tensors[0].hf; /* families list it first */
    const ht_hf_tensor* embd  = ht_hf_checkpoint_find(h->checkpoint, name);
    HT_CHECK(embd, FORMAT, "missing tensor %s", name);
    HT_CHECK(embd->tensor->n_dims == 2, FORMAT, "%s has %d dimensions, expected 2", name, embd->tensor->n_dims);
    h->sizes[HT_SIZE_VOCAB] = embd->tensor->shape[0];
    HT_TRY(ht_json_get_i64(config, ht_json_root(config), "vocab_size", false, 1, INT32_MAX, &vocab_size, err));
    HT_CHECK(h->sizes[HT_SIZE_VOCAB] <= INT32_MAX, BOUNDS, "%s has %" PRId64 " rows", name, h->sizes[HT_SIZE_VOCAB]);
    if (vocab_size != -1 && vocab_size != h->sizes[HT_SIZE_VOCAB]) {
        ht_log_warn(log, "vocab_size is %" PRId64 ", %s has %" PRId64 " rows: the rows count", vocab_size, name, h->sizes[HT_SIZE_VOCAB]);
    }
    *out = embd;
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, ht_hf_checkpoint_folder(h->checkpoint)); }
    return st;
}

/* llama.h: ALL_F32, MOSTLY_F16, MOSTLY_BF16 */
static uint32_t file_type_of(ht_type type) { return type == HT_TYPE_f32 ? 0 : type == HT_TYPE_f16 ? 1 : 32; }

static ht_status import_general(ht_source* source, ht_error* err)
{
    ht_status st       = HT_STATUS_OK;
    int64_t   n_params = 0;
    ht_type   type     = HT_TYPE_f16;
    char      label[32];
    for (int64_t i = source->n_tensors - 1; i >= 0; i--) { /* the type of the first matrix is the type of the file */
        n_params += ht_tensor_n_elems(&source->tensors[i].info);
        if (source->tensors[i].info.n_dims >= 2) { type = source->tensors[i].info.type; }
    }
    HT_TRY(ht_meta_set_string(source->meta, "general.name", source->name, err));
    HT_TRY(ht_meta_set_string(source->meta, "general.size_label", ht_size_label(n_params, label, sizeof label), err));
    HT_TRY(ht_meta_set_u32(source->meta, "general.file_type", file_type_of(type), err));
    HT_TRY(ht_meta_set_u32(source->meta, "general.quantization_version", 2, err));
done:
    return st;
}

static ht_status import_tokenizer(ht_source* source, const ht_source_options* options, const ht_log* log, ht_error* err)
{
    ht_status      st     = HT_STATUS_OK;
    hf_source*     h      = source->self;
    const ht_json* config = ht_hf_checkpoint_config(h->checkpoint);
    ht_hf_tokenizer_options t = { ht_hf_checkpoint_folder(h->checkpoint), h->arch->name, -1, h->sizes[HT_SIZE_VOCAB], options->pre_tokenizer };
    HT_TRY(ht_json_get_i64(config, ht_json_root(config), "vocab_size", false, 1, INT32_MAX, &t.vocab_size, err));
    HT_TRY(ht_hf_tokenizer_import(source->meta, &t, log, err));
done:
    return st;
}

static ht_status open_config_file(hf_source* h, ht_error* err)
{
    const char*  folder = ht_hf_checkpoint_folder(h->checkpoint);
    const size_t n      = strlen(folder) + sizeof "/config.json";
    char*        path   = malloc(n);
    if (!path) { return ht_fail(err, HT_STATUS_NOMEM, "file name"); }
    snprintf(path, n, "%s/config.json", folder);
    const ht_status st = ht_file_open(&h->config_file, path, err);
    free(path);
    return st;
}

/* Family, sizes, keys; failures name config.json. */
static ht_status import_config(ht_source* source, const ht_hf_tensor** embd, const ht_log* log, ht_error* err)
{
    ht_status      st     = HT_STATUS_OK;
    hf_source*     h      = source->self;
    const ht_json* config = ht_hf_checkpoint_config(h->checkpoint);
    HT_TRY(ht_config_find_arch(&h->arch, config, err));
    HT_TRY(ht_config_read_sizes(h->sizes, config, err));
    HT_TRY(find_embedding(h, embd, log, err));
    HT_TRY(ht_config_import(source->meta, &h->rope_factors, config, h->arch, h->sizes, err));
done:
    if (st != HT_STATUS_OK) { ht_error_set_file(err, ht_file_path(h->config_file)); }
    return st;
}

ht_status ht_source_hf_open(ht_source* source, const ht_source_options* options, const ht_log* log, ht_error* err)
{
    ht_status           st   = HT_STATUS_OK;
    const ht_hf_tensor* embd = NULL;
    hf_source*          h    = calloc(1, sizeof *h);
    HT_CHECK(h, NOMEM, "source");
    source->self = h;
    source->ops  = &hf_ops;
    source->meta = ht_meta_create();
    HT_CHECK(source->meta, NOMEM, "metadata");
    HT_TRY(ht_hf_checkpoint_open(&h->checkpoint, source->path, log, err));
    HT_TRY(open_config_file(h, err));
    h->used = calloc((size_t)ht_hf_checkpoint_n_tensors(h->checkpoint), sizeof *h->used);
    HT_CHECK(h->used, NOMEM, "tensor table");
    HT_TRY(ht_hf_check_quantized(h->checkpoint, err));
    HT_TRY(import_config(source, &embd, log, err));
    HT_TRY(ht_generation_config_import(source->meta, ht_hf_checkpoint_folder(h->checkpoint), log, err));
    HT_TRY(place_all(source, embd, log, err));
    HT_TRY(import_general(source, err));
    HT_TRY(import_tokenizer(source, options, log, err));
done:
    return st;
}
