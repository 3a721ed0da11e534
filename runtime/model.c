/*
 * Loading: the list of tensors that the family's graph needs is walked twice with the same code. The first walk checks shapes and adds up bytes, the
 * second one reads every tensor to its place in one block of memory (rows in their own type; f32 for norms, biases, and sources that
 * have to compute their rows).
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/family.h"
#include "runtime/model_impl.h"

enum {
    WEIGHT_ALIGN = 64,       /* bytes: a cache line, and the widest vector                   */
    HUGE_PAGE    = 2 << 20,  /* the block starts at one, so that the kernel may map it so    */
    READ_BYTES   = 1 << 20   /* rows are read in pieces of about this size, one per item     */
};

/* A tensor to be read to `data`, whole. */
typedef struct placement {
    const ht_source_tensor* tensor;
    bool                    as_f32;
    size_t                  row_bytes;
    uint64_t                offset;
} placement;

typedef struct loader {
    const ht_source* source;
    ht_model*        model;
    const ht_family* family;
    placement*       placements; /* one per tensor of the source that is used */
    int64_t          n_placed, n_max;
    uint64_t         n_bytes;    /* so far                                    */
    ht_error*        err;
} loader;

/* The place of the next tensor once memory is there; NULL during the first walk. */
static void* place(loader* l, const ht_source_tensor* t, bool as_f32, size_t row_bytes)
{
    const uint64_t offset = l->n_bytes;
    if (l->model->weights) { return (char*)l->model->weights + l->placements[l->n_placed++].offset; }
    assert(l->n_placed < l->n_max); /* every tensor is asked for once */
    l->placements[l->n_placed++] = (placement){ t, as_f32, row_bytes, offset };
    l->n_bytes += ((uint64_t)row_bytes * (uint64_t)ht_tensor_n_rows(&t->info) + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN;
    return NULL;
}

/* `n_rows` 0: any number. NULL result with OK: absent and not required. */
static ht_status find_tensor(loader* l, const char* name, bool required, int64_t n_cols, int64_t n_rows, const ht_source_tensor** out)
{
    const ht_source_tensor* t = ht_source_find_tensor(l->source, name);
    *out = NULL;
    if (!t) {
        if (!required) { return HT_STATUS_OK; }
        ht_fail(l->err, HT_STATUS_FORMAT, "this tensor of the %s family is missing", l->family->arch);
    } else if (t->info.ne[0] != n_cols || (n_rows > 0 && t->info.ne[1] != n_rows) || t->info.ne[2] != 1 || t->info.ne[3] != 1) {
        ht_fail(l->err, HT_STATUS_FORMAT, "expected shape [%" PRId64 ", %" PRId64 "], found [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]",
                n_cols, n_rows, t->info.ne[0], t->info.ne[1], t->info.ne[2], t->info.ne[3]);
    } else {
        *out = t;
        return HT_STATUS_OK;
    }
    ht_error_set_tensor(l->err, name);
    return HT_STATUS_FORMAT;
}

/* A norm weight or a bias. */
static ht_status take_vector(loader* l, const char* name, ht_presence presence, int64_t n, const float** out)
{
    const ht_source_tensor* t  = NULL;
    ht_status               st = HT_STATUS_OK;
    if (presence != HT_PRESENCE_NEVER) { st = find_tensor(l, name, presence == HT_PRESENCE_ALWAYS, n, 1, &t); }
    *out = t ? place(l, t, true, (size_t)n * sizeof(float)) : NULL;
    return st;
}

static ht_status take_matrix(loader* l, const char* name, bool required, int64_t n_cols, int64_t n_rows, ht_matrix* out)
{
    const ht_source_tensor* t  = NULL;
    ht_status               st = find_tensor(l, name, required, n_cols, n_rows, &t);
    *out = (ht_matrix){ .type = HT_TYPE_f32 };
    if (st != HT_STATUS_OK || !t) { return st; }
    const bool as_f32 = !ht_source_has_raw(l->source, t);
    out->type         = as_f32 ? HT_TYPE_f32 : t->info.type;
    out->n_cols       = n_cols;
    out->n_rows       = t->info.ne[1];
    st                = ht_row_bytes(ht_type_get((uint32_t)out->type), n_cols, &out->row_bytes, l->err);
    if (st == HT_STATUS_OK) { out->data = place(l, t, as_f32, out->row_bytes); }
    return st;
}

/* blk.<layer>.<name>.weight and .bias */
static ht_status take_linear(loader* l, int64_t layer, const char* name, ht_presence bias, int64_t n_cols, int64_t n_rows, ht_linear* out)
{
    char bias_name[HT_GGUF_MAX_NAME + 1];
    snprintf(out->name, sizeof out->name, "blk.%" PRId64 ".%s.weight", layer, name);
    snprintf(bias_name, sizeof bias_name, "blk.%" PRId64 ".%s.bias", layer, name);
    const ht_status st = take_matrix(l, out->name, true, n_cols, n_rows, &out->w);
    return st != HT_STATUS_OK ? st : take_vector(l, bias_name, bias, n_rows, &out->bias);
}

static ht_status take_layer(loader* l, int64_t i, ht_layer* layer)
{
    const ht_hparams* h      = &l->model->hparams;
    const ht_family*  f      = l->family;
    const int64_t     n_q    = h->n_heads * h->head_dim, n_k = h->n_heads_kv * h->head_dim;
    const int64_t     n_v    = h->n_heads_kv * h->head_dim_v, n_out = h->n_heads * h->head_dim_v;
    ht_status         st     = HT_STATUS_OK;
    const struct { const char* name; ht_presence presence; int64_t n; const float** to; } vectors[] = {
        { "attn_norm", HT_PRESENCE_ALWAYS, h->n_embd, &layer->attn_norm },
        { "attn_q_norm", f->qk_norm, h->head_dim, &layer->attn_q_norm },
        { "attn_k_norm", f->qk_norm, h->head_dim, &layer->attn_k_norm },
        { "ffn_norm", HT_PRESENCE_ALWAYS, h->n_embd, &layer->ffn_norm },
    };
    const struct { const char* name; ht_presence bias; int64_t n_cols, n_rows; ht_linear* to; } linears[] = {
        { "attn_q", f->qkv_bias, h->n_embd, n_q, &layer->attn_q },
        { "attn_k", f->qkv_bias, h->n_embd, n_k, &layer->attn_k },
        { "attn_v", f->qkv_bias, h->n_embd, n_v, &layer->attn_v },
        { "attn_output", f->other_bias, n_out, h->n_embd, &layer->attn_output },
        { "ffn_gate", f->other_bias, h->n_embd, h->n_ff, &layer->ffn_gate },
        { "ffn_up", f->other_bias, h->n_embd, h->n_ff, &layer->ffn_up },
        { "ffn_down", f->other_bias, h->n_ff, h->n_embd, &layer->ffn_down },
    };
    for (size_t v = 0; v < sizeof vectors / sizeof *vectors; v++) {
        char name[HT_GGUF_MAX_NAME + 1];
        snprintf(name, sizeof name, "blk.%" PRId64 ".%s.weight", i, vectors[v].name);
        HT_TRY(take_vector(l, name, vectors[v].presence, vectors[v].n, vectors[v].to));
    }
    for (size_t n = 0; n < sizeof linears / sizeof *linears; n++) {
        HT_TRY(take_linear(l, i, linears[n].name, linears[n].bias, linears[n].n_cols, linears[n].n_rows, linears[n].to));
    }
done:
    return st;
}

static ht_status walk(loader* l, const float** rope_factors)
{
    ht_model*   m  = l->model;
    ht_hparams* h  = &m->hparams;
    ht_status   st = HT_STATUS_OK;
    l->n_placed    = 0;
    HT_TRY(take_matrix(l, "token_embd.weight", true, h->n_embd, 0, &m->token_embd));
    h->n_vocab = m->token_embd.n_rows;
    for (int64_t i = 0; i < h->n_layers; i++) { HT_TRY(take_layer(l, i, &m->layers[i])); }
    HT_TRY(take_vector(l, "output_norm.weight", HT_PRESENCE_ALWAYS, h->n_embd, &m->output_norm));
    HT_TRY(take_matrix(l, "output.weight", false, h->n_embd, h->n_vocab, &m->output.w));
    if (m->output.w.n_rows == 0) { m->output.w = m->token_embd; }
    snprintf(m->output.name, sizeof m->output.name, "output.weight");
    HT_TRY(take_vector(l, "rope_freqs.weight", HT_PRESENCE_OPTIONAL, h->n_rot / 2, rope_factors));
done:
    return st;
}

/* A tensor that the graph would ignore means that the graph is not the one that the file was made for. */
static ht_status check_all_used(const loader* l)
{
    for (int64_t i = 0; l->n_placed < ht_source_n_tensors(l->source) && i < ht_source_n_tensors(l->source); i++) {
        const ht_source_tensor* t    = ht_source_tensor_at(l->source, i);
        bool                    used = false;
        for (int64_t p = 0; p < l->n_placed && !used; p++) { used = l->placements[p].tensor == t; }
        if (!used) {
            ht_fail(l->err, HT_STATUS_UNSUPPORTED, "the graph of the %s family does not use this tensor", l->family->arch);
            ht_error_set_tensor(l->err, t->info.name);
            return HT_STATUS_UNSUPPORTED;
        }
    }
    return HT_STATUS_OK;
}

/* All tensors, in pieces of rows, on all threads. The first failure in order is reported. */
static ht_status read_weights(const loader* l, const ht_ctx* ctx)
{
    ht_status st   = HT_STATUS_OK;
    uint64_t  done = 0;
    for (int64_t p = 0; p < l->n_placed && st == HT_STATUS_OK; p++) {
        const placement* at       = &l->placements[p];
        const int64_t    n_rows   = ht_tensor_n_rows(&at->tensor->info);
        const int64_t    per_item = at->row_bytes < READ_BYTES ? READ_BYTES / (int64_t)at->row_bytes : 1;
        const int64_t    n_items  = (n_rows + per_item - 1) / per_item;
        char* const      to       = (char*)l->model->weights + at->offset;
        int64_t          failed   = INT64_MAX;
        if (ht_cancelled(ctx)) { return ht_fail(l->err, HT_STATUS_CANCELLED, "interrupted"); }
#pragma omp parallel for schedule(dynamic) num_threads(ctx->n_threads) if (n_items > 1)
        for (int64_t i = 0; i < n_items; i++) {
            ht_error      err = HT_ERROR_INIT;
            const int64_t row = i * per_item, n = n_rows - row < per_item ? n_rows - row : per_item;
            char* const   dst = to + (size_t)row * at->row_bytes;
            const ht_status s = at->as_f32 ? ht_source_read_rows_f32(l->source, at->tensor, row, n, (float*)(void*)dst, &err)
                                           : ht_source_read_rows_raw(l->source, at->tensor, row, n, dst, &err);
            if (s == HT_STATUS_OK) { continue; }
#pragma omp critical(ht_model_load)
            if (i < failed) {
                failed = i;
                st     = s;
                if (l->err) { *l->err = err; }
            }
        }
        if (st != HT_STATUS_OK) { ht_error_set_tensor(l->err, at->tensor->info.name); }
        done += at->row_bytes * (uint64_t)n_rows;
        ht_progress(ctx, "loading", done, l->n_bytes > done ? l->n_bytes : done);
    }
    return st;
}

static uint64_t matrix_bytes(const ht_matrix* w) { return (uint64_t)w->row_bytes * (uint64_t)w->n_rows; }

/* Every linear is read once per token; of the embedding one row (unless it is the output too). */
static uint64_t count_bytes_per_token(const ht_model* m)
{
    uint64_t n = m->token_embd.row_bytes + matrix_bytes(&m->output.w);
    for (int64_t i = 0; i < m->hparams.n_layers; i++) {
        const ht_layer* l = &m->layers[i];
        n += matrix_bytes(&l->attn_q.w) + matrix_bytes(&l->attn_k.w) + matrix_bytes(&l->attn_v.w) + matrix_bytes(&l->attn_output.w) +
             matrix_bytes(&l->ffn_gate.w) + matrix_bytes(&l->ffn_up.w) + matrix_bytes(&l->ffn_down.w);
    }
    return n;
}

ht_status ht_model_load(ht_model** out, const ht_source* source, ht_compute compute, const ht_ctx* ctx, ht_error* err)
{
    ht_status    st           = HT_STATUS_OK;
    const float* rope_factors = NULL;
    ht_model*    m            = calloc(1, sizeof *m);
    loader       l            = { .source = source, .model = m, .n_max = ht_source_n_tensors(source), .err = err };
    HT_CHECK(m, NOMEM, "model");
    const uint32_t features = ht_cpu_features() & ht_isa_features(ctx->isa);
    m->compute = compute;
    m->ops     = ht_graph_ops_get(features);
    ht_kernels_select(&m->kernels, features);
    HT_TRY(ht_hparams_read(&m->hparams, &l.family, ht_source_meta(source), err));
    m->layers    = calloc((size_t)m->hparams.n_layers, sizeof *m->layers);
    l.placements = calloc((size_t)l.n_max + 1, sizeof *l.placements);
    HT_CHECK(m->layers && l.placements, NOMEM, "model of %" PRId64 " layers", m->hparams.n_layers);
    for (int64_t i = 0; i < m->hparams.n_layers; i++) { HT_TRY(ht_hparams_window(&m->hparams, ht_source_meta(source), i, &m->layers[i].window, err)); }

    HT_TRY(walk(&l, &rope_factors));
    HT_TRY(check_all_used(&l));
    const size_t n_block = (size_t)(l.n_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    m->weights_bytes     = l.n_bytes;
    m->weights           = aligned_alloc(HUGE_PAGE, n_block);
    HT_CHECK(m->weights, NOMEM, "%" PRIu64 " bytes of weights", l.n_bytes);
    (void)madvise(m->weights, n_block, MADV_HUGEPAGE); /* a wish; without it only the speed differs */
    HT_TRY(walk(&l, &rope_factors));
    HT_TRY(read_weights(&l, ctx));
    HT_TRY(ht_rope_init(&m->rope, ht_source_meta(source), m->hparams.arch, m->hparams.n_rot, m->hparams.rope_neox, m->hparams.rope_freq_base,
                        rope_factors, err));
    m->bytes_per_token = count_bytes_per_token(m);
    *out = m;
    m    = NULL;
done:
    free(l.placements);
    ht_model_free(m);
    if (st != HT_STATUS_OK) { ht_error_set_file(err, ht_source_path(source)); }
    return st;
}

void ht_model_free(ht_model* model)
{
    if (!model) { return; }
    ht_rope_deinit(&model->rope);
    free(model->weights);
    free(model->layers);
    free(model);
}

const ht_hparams* ht_model_hparams(const ht_model* model) { return &model->hparams; }
uint64_t          ht_model_weights_bytes(const ht_model* model) { return model->weights_bytes; }
uint64_t          ht_model_bytes_per_token(const ht_model* model) { return model->bytes_per_token; }
