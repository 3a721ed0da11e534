/* A GGUF file, or a set of split files, as a source: tensors and metadata as they are, but for the keys that describe the split. */
#include <stdlib.h>
#include <string.h>

#include "formats/decode.h"
#include "formats/gguf_split.h"
#include "formats/source_impl.h"

typedef struct tensor_place {
    const ht_gguf*        part;
    const ht_tensor_info* info;
} tensor_place;

typedef struct gguf_source {
    ht_gguf**     parts;
    int           n_parts;
    tensor_place* places; /* one per tensor of the source */
} gguf_source;

static void gguf_close(void* self)
{
    gguf_source* g = self;
    ht_gguf_split_close(g->parts, g->n_parts);
    free(g->places);
    free(g);
}

static ht_status read_raw(const void* self, int64_t index, int64_t row, int64_t n_rows, void* out, ht_error* err)
{
    ht_status          st    = HT_STATUS_OK;
    const tensor_place place = ((const gguf_source*)self)->places[index];
    size_t             n_row = 0;
    HT_TRY(ht_row_bytes(ht_type_get(place.info->type), place.info->ne[0], &n_row, err));
    HT_TRY(ht_gguf_read(place.part, place.info, (uint64_t)row * n_row, out, (uint64_t)n_rows * n_row, err));
done:
    return st;
}

static ht_status read_f32(const void* self, int64_t index, int64_t row, int64_t n_rows, float* out, ht_error* err)
{
    enum { SCRATCH_BYTES = 1 << 18 };
    ht_status             st     = HT_STATUS_OK;
    const ht_tensor_info* info   = ((const gguf_source*)self)->places[index].info;
    const int64_t         n_cols = info->ne[0];
    size_t                n_row  = 0;
    void*                 blocks = NULL;
    HT_TRY(ht_row_bytes(ht_type_get(info->type), n_cols, &n_row, err));
    const int64_t n_room = n_row < SCRATCH_BYTES ? (int64_t)(SCRATCH_BYTES / n_row) : 1;
    const int64_t n_step = n_room < n_rows ? n_room : n_rows;
    blocks = malloc((size_t)n_step * n_row + 1);
    HT_CHECK(blocks, NOMEM, "scratch of %lld rows", (long long)n_step);
    for (int64_t r = 0; r < n_rows; r += n_step) {
        const int64_t n = n_rows - r < n_step ? n_rows - r : n_step;
        HT_TRY(read_raw(self, index, row + r, n, blocks, err));
        ht_decode_row_get(info->type)(blocks, out + r * n_cols, n * n_cols);
    }
done:
    free(blocks);
    return st;
}

static bool has_raw(const void* self, int64_t index)
{
    (void)self, (void)index;
    return true;
}

static bool file_at(const void* self, int64_t index, const ht_file** file, uint64_t* n_header)
{
    const gguf_source* g = self;
    if (index >= g->n_parts) { return false; }
    *file     = ht_gguf_file(g->parts[index]);
    *n_header = ht_gguf_data_offset(g->parts[index]);
    if (*n_header > ht_file_size(*file)) { *n_header = ht_file_size(*file); } /* a header alone is not padded */
    return true;
}

static const ht_source_ops gguf_ops = { "gguf", gguf_close, read_f32, has_raw, read_raw, file_at };

static ht_status add_tensors(ht_source* source, gguf_source* g, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    int64_t   n  = 0;
    for (int p = 0; p < g->n_parts; p++) { n += ht_gguf_n_tensors(g->parts[p]); }
    g->places = calloc((size_t)n + 1, sizeof *g->places);
    HT_CHECK(g->places, NOMEM, "tensor table");
    for (int p = 0; p < g->n_parts; p++) {
        for (int64_t i = 0; i < ht_gguf_n_tensors(g->parts[p]); i++) {
            const ht_tensor_info* info = ht_gguf_tensor_at(g->parts[p], i);
            g->places[source->n_tensors] = (tensor_place){ g->parts[p], info };
            HT_TRY(ht_source_add_tensor(source, info, info->name, "copy", err));
        }
    }
done:
    return st;
}

/* The name for {name}: without the part's "-00001-of-00003". */
static void cut_part_suffix(char* name, int n_parts)
{
    enum { TAIL = sizeof "-00001-of-00003" - 1 };
    const size_t n = strlen(name);
    if (n_parts > 1 && n > TAIL && name[n - TAIL] == '-') { name[n - TAIL] = '\0'; }
}

ht_status ht_source_gguf_open(ht_source* source, ht_error* err)
{
    ht_status    st = HT_STATUS_OK;
    gguf_source* g  = calloc(1, sizeof *g);
    HT_CHECK(g, NOMEM, "source");
    source->self = g;
    source->ops  = &gguf_ops;
    HT_TRY(ht_gguf_split_open(&g->parts, &g->n_parts, source->path, err));
    HT_TRY(ht_meta_clone(&source->meta, ht_gguf_meta(g->parts[0]), err));
    for (int64_t i = ht_meta_count(source->meta) - 1; i >= 0; i--) {
        const char* key = ht_meta_at(source->meta, i)->key;
        if (ht_gguf_is_split_key(key)) { ht_meta_remove(source->meta, key); }
    }
    HT_TRY(add_tensors(source, g, err));
    cut_part_suffix(source->name, g->n_parts);
done:
    return st;
}
