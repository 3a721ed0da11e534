#include "calib/layer.h"

#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/half.h"

/* --- weights ---------------------------------------------------------------------------------------------------------------------- */

static const char* const linear_names[HT_LINEAR_COUNT] = { "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down" };

void ht_layer_describe(ht_layer_f32* layer, const ht_hparams* h, int64_t index)
{
    const int64_t rows[HT_LINEAR_COUNT] = { h->n_heads * h->head_dim, h->n_heads_kv * h->head_dim, h->n_heads_kv * h->head_dim_v, h->n_embd, h->n_ff, h->n_ff, h->n_embd };
    const int64_t cols[HT_LINEAR_COUNT] = { h->n_embd, h->n_embd, h->n_embd, h->n_heads * h->head_dim_v, h->n_embd, h->n_embd, h->n_ff };
    *layer = (ht_layer_f32){ .hparams = h };
    for (int k = 0; k < HT_LINEAR_COUNT; k++) {
        snprintf(layer->linears[k].name, sizeof layer->linears[k].name, "blk.%" PRId64 ".%s.weight", index, linear_names[k]);
        layer->linears[k].n_rows = rows[k];
        layer->linears[k].n_cols = cols[k];
    }
}

/* A tensor of n_rows rows of n_cols; *out stays NULL when it is absent and not required. Rows are read on all threads. */
static ht_status read_tensor(float** out, const ht_source* source, const char* name, bool required, int64_t n_rows, int64_t n_cols, int n_threads, ht_error* err)
{
    const ht_source_tensor* t      = ht_source_find_tensor(source, name);
    ht_status               st     = HT_STATUS_OK;
    const int64_t           step   = n_cols < (1 << 18) ? (1 << 18) / n_cols : 1;
    int64_t                 failed = INT64_MAX;
    if (!t && !required) { return HT_STATUS_OK; }
    HT_CHECK(t, FORMAT, "this tensor is missing");
    HT_CHECK(t->info.ne[0] == n_cols && ht_tensor_n_rows(&t->info) == n_rows, FORMAT, "expected shape [%" PRId64 ", %" PRId64 "], found [%" PRId64 ", %" PRId64 "]",
             n_cols, n_rows, t->info.ne[0], ht_tensor_n_rows(&t->info));
    *out = malloc((size_t)(n_rows * n_cols) * sizeof **out);
    HT_CHECK(*out, NOMEM, "%" PRId64 " weights", n_rows * n_cols);
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
    for (int64_t r = 0; r < n_rows; r += step) {
        ht_error        why = HT_ERROR_INIT;
        const ht_status s   = ht_source_read_rows_f32(source, t, r, n_rows - r < step ? n_rows - r : step, *out + r * n_cols, &why);
        if (s == HT_STATUS_OK) { continue; }
#pragma omp critical(ht_layer_read)
        if (r < failed) {
            failed = r;
            st     = s;
            if (err) { *err = why; }
        }
    }
done:
    if (st != HT_STATUS_OK) { ht_error_set_tensor(err, name); }
    return st;
}

ht_status ht_layer_read(ht_layer_f32* layer, const ht_source* source, int64_t index, int n_threads, ht_error* err)
{
    const ht_hparams* h  = layer->hparams;
    ht_status         st = HT_STATUS_OK;
    char              name[HT_GGUF_MAX_NAME + 1];
    const struct { const char* name; bool required; int64_t n; float** to; } vectors[] = {
        { "attn_norm", true, h->n_embd, &layer->attn_norm },   { "ffn_norm", true, h->n_embd, &layer->ffn_norm },
        { "attn_q_norm", false, h->head_dim, &layer->q_norm }, { "attn_k_norm", false, h->head_dim, &layer->k_norm },
    };
    for (size_t k = 0; k < sizeof vectors / sizeof *vectors; k++) {
        snprintf(name, sizeof name, "blk.%" PRId64 ".%s.weight", index, vectors[k].name);
        HT_TRY(read_tensor(vectors[k].to, source, name, vectors[k].required, 1, vectors[k].n, n_threads, err));
    }
    for (int k = 0; k < HT_LINEAR_COUNT; k++) {
        ht_layer_linear* l = &layer->linears[k];
        HT_TRY(read_tensor(&l->w, source, l->name, true, l->n_rows, l->n_cols, n_threads, err));
        snprintf(name, sizeof name, "blk.%" PRId64 ".%s.bias", index, linear_names[k]);
        HT_TRY(read_tensor(&l->bias, source, name, false, 1, l->n_rows, n_threads, err));
    }
done:
    return st;
}

void ht_layer_deinit(ht_layer_f32* layer)
{
    if (!layer) { return; }
    free(layer->attn_norm);
    free(layer->ffn_norm);
    free(layer->q_norm);
    free(layer->k_norm);
    layer->attn_norm = layer->ffn_norm = layer->q_norm = layer->k_norm = NULL;
    for (int k = 0; k < HT_LINEAR_COUNT; k++) {
        free(layer->linears[k].w);
        free(layer->linears[k].bias);
        layer->linears[k].w = layer->linears[k].bias = NULL;
    }
}

/* --- space -------------------------------------------------------------------------------------------------------------------------- */

ht_status ht_layer_space_init(ht_layer_space* s, const ht_hparams* h, const ht_rope* rope, int64_t n, ht_error* err)
{
    ht_status     st = HT_STATUS_OK;
    const int64_t nq = h->n_heads * h->head_dim, nk = h->n_heads_kv * h->head_dim, nv = h->n_heads_kv * h->head_dim_v, na = h->n_heads * h->head_dim_v;
    const int64_t widest = h->n_embd > na ? h->n_embd : na;
    size_t        total  = 0;
    *s = (ht_layer_space){ .n = n };
    const struct { float** to; int64_t width; } parts[] = {
        { &s->q0, nq }, { &s->k0, nk }, { &s->q, nq }, { &s->k, nk }, { &s->v, nv }, { &s->x2, h->n_embd }, { &s->gate, h->n_ff }, { &s->up, h->n_ff },
        { &s->dq, nq }, { &s->dk, nk }, { &s->dv, nv }, { &s->da, na }, { &s->dx2, h->n_embd }, { &s->dgate, h->n_ff }, { &s->dup, h->n_ff },
        { &s->df, h->n_ff }, { &s->dh, widest }, { &s->scores, n }, { &s->dscores, n }, { &s->tables, h->n_rot },
    };
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) { total += (size_t)((parts[k].width * n + 15) / 16 * 16); }
    s->block = aligned_alloc(64, total * sizeof(float));
    HT_CHECK(s->block, NOMEM, "activations of %" PRId64 " tokens", n);
    float* at = s->block;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        *parts[k].to = at;
        at += (parts[k].width * n + 15) / 16 * 16;
    }
    for (int64_t t = 0; t < n; t++) { ht_rope_fill(rope, t, s->tables + t * h->n_rot); }
done:
    return st;
}

void ht_layer_space_deinit(ht_layer_space* s)
{
    if (!s) { return; }
    free(s->block);
    s->block = NULL;
}

/* --- forwards ------------------------------------------------------------------------------------------------------------------------ */

/* y = x W^T (+ b) */
static void linear_forward(const ht_layer_linear* l, int64_t n, const float* x, float* y)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)l->n_rows, (int)l->n_cols, 1.0f, x, (int)l->n_cols, l->w, (int)l->n_cols, 0.0f, y, (int)l->n_rows);
    for (int64_t t = 0; l->bias && t < n; t++) {
        for (int64_t r = 0; r < l->n_rows; r++) { y[t * l->n_rows + r] += l->bias[r]; }
    }
}

/* dx = beta dx + g W */
static void linear_backward(const ht_layer_linear* l, int64_t n, const float* g, float beta, float* dx)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)l->n_cols, (int)l->n_rows, 1.0f, g, (int)l->n_rows, l->w, (int)l->n_cols, beta, dx, (int)l->n_cols);
}

/* Norm, rope and scale of heads: from -> to. */
static void place_heads(const ht_layer_f32* l, const ht_layer_space* s, int64_t n_heads, const float* norm, float scale, const float* from, float* to)
{
    const ht_hparams* h = l->hparams;
    for (int64_t t = 0; t < s->n; t++) {
        for (int64_t i = 0; i < n_heads; i++) {
            const float* a = from + (t * n_heads + i) * h->head_dim;
            float*       b = to + (t * n_heads + i) * h->head_dim;
            if (norm) { l->ops->rms_norm(a, norm, h->norm_rms_eps, h->head_dim, b); }
            else { memcpy(b, a, (size_t)h->head_dim * sizeof *b); }
            ht_rope_turn(l->rope, s->tables + t * h->n_rot, b);
            for (int64_t d = 0; d < h->head_dim; d++) { b[d] *= scale; }
        }
    }
}

/* e^x by 2^n e^r as in graph_ops_body.h: branch-free, so that loops are vectorised. */
static inline float exp_small(float x)
{
    x = x < -87.0f ? -87.0f : x;
    const float biased = x * 0x1.715476p+0f + 0x1.8p23f, n = biased - 0x1.8p23f;
    const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    const float p = ((((((1.0f / 5040.0f * r + 1.0f / 720.0f) * r + 1.0f / 120.0f) * r + 1.0f / 24.0f) * r + 1.0f / 6.0f) * r + 0.5f) * r + 1.0f) * r + 1.0f;
    return p * ht_f32_from_bits((uint32_t)((int32_t)n + 127) << 23);
}

void ht_exp_shifted(float* row, int64_t n, float shift)
{
    for (int64_t i = 0; i < n; i++) { row[i] = exp_small(row[i] - shift); }
}

/* Row t: softmax over the keys that t sees, zeros elsewhere. */
static void softmax_rows(float* scores, int64_t n, int64_t window)
{
    for (int64_t t = 0; t < n; t++) {
        float*        row  = scores + t * n;
        const int64_t from = window > 0 && t + 1 > window ? t + 1 - window : 0;
        float         max = row[from], sum = 0.0f;
        for (int64_t k = from; k <= t; k++) { max = row[k] > max ? row[k] : max; }
        for (int64_t k = from; k <= t; k++) { row[k] = exp_small(row[k] - max); }
        for (int64_t k = from; k <= t; k++) { sum += row[k]; }
        const float inverse = 1.0f / sum;
        for (int64_t k = 0; k < from; k++) { row[k] = 0.0f; }
        for (int64_t k = from; k <= t; k++) { row[k] *= inverse; }
        for (int64_t k = t + 1; k < n; k++) { row[k] = 0.0f; }
    }
}

/* Probabilities of a query head. */
static void head_scores(const ht_layer_f32* l, const ht_layer_space* s, int64_t head)
{
    const ht_hparams* h = l->hparams;
    const int64_t     kv = head / (h->n_heads / h->n_heads_kv);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)s->n, (int)s->n, (int)h->head_dim, 1.0f, s->q + head * h->head_dim, (int)(h->n_heads * h->head_dim),
                s->k + kv * h->head_dim, (int)(h->n_heads_kv * h->head_dim), 0.0f, s->scores, (int)s->n);
    softmax_rows(s->scores, s->n, l->window);
}

static void attention_forward(const ht_layer_f32* l, ht_layer_space* s)
{
    const ht_hparams* h = l->hparams;
    place_heads(l, s, h->n_heads, l->q_norm, 1.0f / sqrtf((float)h->head_dim), s->q0, s->q);
    place_heads(l, s, h->n_heads_kv, l->k_norm, 1.0f, s->k0, s->k);
    for (int64_t head = 0; head < h->n_heads; head++) {
        const int64_t kv = head / (h->n_heads / h->n_heads_kv);
        head_scores(l, s, head);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)s->n, (int)h->head_dim_v, (int)s->n, 1.0f, s->scores, (int)s->n, s->v + kv * h->head_dim_v,
                    (int)(h->n_heads_kv * h->head_dim_v), 0.0f, s->a + head * h->head_dim_v, (int)(h->n_heads * h->head_dim_v));
    }
}

void ht_layer_forward(const ht_layer_f32* l, ht_layer_space* s, const float* x, float* y)
{
    const ht_hparams* h = l->hparams;
    const int64_t     n = s->n;
    for (int64_t t = 0; t < n; t++) { l->ops->rms_norm(x + t * h->n_embd, l->attn_norm, h->norm_rms_eps, h->n_embd, s->h1 + t * h->n_embd); }
    linear_forward(&l->linears[HT_LINEAR_Q], n, s->h1, s->q0);
    linear_forward(&l->linears[HT_LINEAR_K], n, s->h1, s->k0);
    linear_forward(&l->linears[HT_LINEAR_V], n, s->h1, s->v);
    attention_forward(l, s);
    linear_forward(&l->linears[HT_LINEAR_O], n, s->a, s->x2);
    for (int64_t i = 0; i < n * h->n_embd; i++) { s->x2[i] += x[i]; }

    for (int64_t t = 0; t < n; t++) { l->ops->rms_norm(s->x2 + t * h->n_embd, l->ffn_norm, h->norm_rms_eps, h->n_embd, s->h2 + t * h->n_embd); }
    linear_forward(&l->linears[HT_LINEAR_GATE], n, s->h2, s->gate);
    linear_forward(&l->linears[HT_LINEAR_UP], n, s->h2, s->up);
    memcpy(s->f, s->gate, (size_t)(n * h->n_ff) * sizeof(float));
    for (int64_t t = 0; t < n; t++) { l->ops->silu_mul(s->f + t * h->n_ff, s->up + t * h->n_ff, h->n_ff); }
    linear_forward(&l->linears[HT_LINEAR_DOWN], n, s->f, y);
    for (int64_t i = 0; i < n * h->n_embd; i++) { y[i] += s->x2[i]; }
}

/* --- backwards ----------------------------------------------------------------------------------------------------------------------- */

/* y_i = x_i r w_i with r = (mean x^2 + eps)^-1/2:  dx_i += r w_i dy_i - x_i r^3 / n * sum_j w_j dy_j x_j */
void ht_rms_norm_backward(const float* x, const float* weight, float eps, int64_t n, int64_t width, const float* dy, float* dx)
{
    for (int64_t t = 0; t < n; t++) {
        const float *a = x + t * width, *g = dy + t * width;
        float*       d = dx + t * width;
        double       square = 0.0, dot = 0.0;
        for (int64_t i = 0; i < width; i++) {
            square += (double)a[i] * (double)a[i];
            dot += (double)weight[i] * (double)g[i] * (double)a[i];
        }
        const double r    = 1.0 / sqrt(square / (double)width + (double)eps);
        const float  near = (float)r, back = (float)(r * r * r / (double)width * dot);
        for (int64_t i = 0; i < width; i++) { d[i] += near * weight[i] * g[i] - back * a[i]; }
    }
}

/* The derivative of place_heads, in place: the gradient of what the linear gave. */
static void unplace_heads(const ht_layer_f32* l, const ht_layer_space* s, int64_t n_heads, const float* norm, float scale, const float* before, float* g)
{
    const ht_hparams* h = l->hparams;
    float             back[1024], turned[1024]; /* one head; head_dim is checked when spaces are made */
    for (int64_t t = 0; t < s->n; t++) {
        const float* table = s->tables + t * h->n_rot;
        for (int64_t j = 0; j < h->n_rot; j++) { back[j] = j < h->n_rot / 2 ? table[j] : -table[j]; }
        for (int64_t i = 0; i < n_heads; i++) {
            float* d = g + (t * n_heads + i) * h->head_dim;
            for (int64_t k = 0; k < h->head_dim; k++) { d[k] *= scale; }
            ht_rope_turn(l->rope, back, d);
            if (!norm) { continue; }
            memcpy(turned, d, (size_t)h->head_dim * sizeof *d);
            memset(d, 0, (size_t)h->head_dim * sizeof *d);
            ht_rms_norm_backward(before + (t * n_heads + i) * h->head_dim, norm, h->norm_rms_eps, 1, h->head_dim, turned, d);
        }
    }
}

/* dS = P (dP - sum P dP), in place of dP */
static void softmax_backward(const float* p, float* dp, int64_t n)
{
    for (int64_t t = 0; t < n; t++) {
        const float* a   = p + t * n;
        float*       d   = dp + t * n;
        float        sum = 0.0f;
        for (int64_t k = 0; k <= t; k++) { sum += a[k] * d[k]; }
        for (int64_t k = 0; k <= t; k++) { d[k] = a[k] * (d[k] - sum); }
        for (int64_t k = t + 1; k < n; k++) { d[k] = 0.0f; }
    }
}

static void attention_backward(const ht_layer_f32* l, ht_layer_space* s)
{
    const ht_hparams* h = l->hparams;
    const int         n = (int)s->n, q_stride = (int)(h->n_heads * h->head_dim), k_stride = (int)(h->n_heads_kv * h->head_dim);
    const int         v_stride = (int)(h->n_heads_kv * h->head_dim_v), a_stride = (int)(h->n_heads * h->head_dim_v);
    for (int64_t head = 0; head < h->n_heads; head++) {
        const int64_t group = h->n_heads / h->n_heads_kv, kv = head / group;
        const float   beta = head % group == 0 ? 0.0f : 1.0f; /* the heads of a group add to the same keys and values */
        const float*  da   = s->da + head * h->head_dim_v;
        head_scores(l, s, head);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, (int)h->head_dim_v, n, 1.0f, s->scores, n, da, a_stride, beta, s->dv + kv * h->head_dim_v, v_stride);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, (int)h->head_dim_v, 1.0f, da, a_stride, s->v + kv * h->head_dim_v, v_stride, 0.0f, s->dscores, n);
        softmax_backward(s->scores, s->dscores, s->n);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, (int)h->head_dim, n, 1.0f, s->dscores, n, s->k + kv * h->head_dim, k_stride, 0.0f,
                    s->dq + head * h->head_dim, q_stride);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, (int)h->head_dim, n, 1.0f, s->dscores, n, s->q + head * h->head_dim, q_stride, beta,
                    s->dk + kv * h->head_dim, k_stride);
    }
    unplace_heads(l, s, h->n_heads, l->q_norm, 1.0f / sqrtf((float)h->head_dim), s->q0, s->dq);
    unplace_heads(l, s, h->n_heads_kv, l->k_norm, 1.0f, s->k0, s->dk);
}

void ht_layer_backward(const ht_layer_f32* l, ht_layer_space* s, const float* x, const float* dy, float* dx)
{
    const ht_hparams* h = l->hparams;
    const int64_t     n = s->n, n_ff = n * h->n_ff, n_embd = n * h->n_embd;
    linear_backward(&l->linears[HT_LINEAR_DOWN], n, dy, 0.0f, s->df);
    for (int64_t i = 0; i < n_ff; i++) { /* silu(z) = z c with c = 1 / (1 + e^-z);  silu'(z) = c (1 + z (1 - c)) */
        const float z = s->gate[i], c = 1.0f / (1.0f + exp_small(z < -80.0f ? 80.0f : -z > 80.0f ? 80.0f : -z));
        s->dup[i]   = s->df[i] * z * c;
        s->dgate[i] = s->df[i] * s->up[i] * c * (1.0f + z * (1.0f - c));
    }
    linear_backward(&l->linears[HT_LINEAR_GATE], n, s->dgate, 0.0f, s->dh);
    linear_backward(&l->linears[HT_LINEAR_UP], n, s->dup, 1.0f, s->dh);
    memcpy(s->dx2, dy, (size_t)n_embd * sizeof(float));
    ht_rms_norm_backward(s->x2, l->ffn_norm, h->norm_rms_eps, n, h->n_embd, s->dh, s->dx2);

    linear_backward(&l->linears[HT_LINEAR_O], n, s->dx2, 0.0f, s->da);
    attention_backward(l, s);
    linear_backward(&l->linears[HT_LINEAR_Q], n, s->dq, 0.0f, s->dh);
    linear_backward(&l->linears[HT_LINEAR_K], n, s->dk, 1.0f, s->dh);
    linear_backward(&l->linears[HT_LINEAR_V], n, s->dv, 1.0f, s->dh);
    memcpy(dx, s->dx2, (size_t)n_embd * sizeof(float));
    ht_rms_norm_backward(x, l->attn_norm, h->norm_rms_eps, n, h->n_embd, s->dh, dx);
}

const float* ht_layer_output_gradient(const ht_layer_space* s, ht_linear_id linear, const float* dy)
{
    const float* const g[HT_LINEAR_COUNT] = { s->dq, s->dk, s->dv, s->dx2, s->dgate, s->dup, dy };
    return g[linear];
}

float* ht_layer_input(const ht_layer_space* s, ht_linear_id linear)
{
    float* const x[HT_LINEAR_COUNT] = { s->h1, s->h1, s->h1, s->a, s->h2, s->h2, s->f };
    return x[linear];
}
