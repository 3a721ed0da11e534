#include "calib/probe.h"

#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { PROBE_CHUNKS = 8, PROBE_CTX = 64, BLOCK_TOKENS = 128 };

/* Errors have this share of a row's root mean square: between 4 and 5 bits. */
static const double relative_error = 0.05;

typedef struct prober {
    ht_layer_runner run;
    int64_t         n_chunks, n_ctx, n_x; /* n_x: values of one state, (n_chunks, n_ctx, n_embd)                         */
    float*          clean;                /* the state without errors                                                    */
    float**         states;               /* [0] error in the embedding, [1 + i] in layer i; NULL until the layer is reached */
    float**         parts;                /* chunks of several states, for one sweep                                      */
    double*         energy;               /* per state: mean squared error per token that was put in                      */
    double*         share;                /* per linear: energy at the layer's output over the one at the linear's output  */
    float*          noise;                /* of one matrix                                                                */
    float*          outputs;              /* (n_chunks * n_ctx, widest rows)                                              */
} prober;

static uint64_t random_at(uint64_t seed, uint64_t index)
{
    uint64_t z = seed * 0x9E3779B97F4A7C15u + (index + 1) * 0xD1342543DE82EF95u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Uniform errors of the rows of w, (n_rows, n) both. */
static void make_noise(const float* w, int64_t n_rows, int64_t n, uint64_t seed, int n_threads, float* noise)
{
#pragma omp parallel for schedule(static) num_threads(n_threads)
    for (int64_t r = 0; r < n_rows; r++) {
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++) { sum += (double)w[r * n + i] * (double)w[r * n + i]; }
        const double reach = relative_error * sqrt(3.0 * sum / (double)n); /* of a uniform error with that root mean square */
        for (int64_t i = 0; i < n; i++) {
            const double unit = (double)(random_at(seed, (uint64_t)(r * n + i)) >> 11) * 0x1p-53;
            noise[r * n + i] = (float)((2.0 * unit - 1.0) * reach);
        }
    }
}

static uint64_t seed_of(const prober* p, int64_t layer, int linear) { return p->run.ctx->seed + (uint64_t)(layer * HT_LINEAR_COUNT + linear + 1) * 0x632BE59BD9B4E019u; }

/* Mean over tokens of the squared length of a - b; a fixed order of sums. */
static double mean_square_distance(const float* a, const float* b, int64_t n_tokens, int64_t width)
{
    double total = 0.0;
    for (int64_t t = 0; t < n_tokens; t++) {
        double sum = 0.0;
        for (int64_t i = 0; i < width; i++) {
            const double d = (double)a[t * width + i] - (b ? (double)b[t * width + i] : 0.0);
            sum += d * d;
        }
        total += sum;
    }
    return total / (double)n_tokens;
}

static ht_status state_create(prober* p, int64_t index, const float* from, ht_error* err)
{
    p->states[index] = malloc((size_t)p->n_x * sizeof(float));
    if (!p->states[index]) { return ht_fail(err, HT_STATUS_NOMEM, "a state of %" PRId64 " tokens", p->n_chunks * p->n_ctx); }
    memcpy(p->states[index], from, (size_t)p->n_x * sizeof(float));
    return HT_STATUS_OK;
}

/* All of the states through the layer. */
static ht_status sweep(prober* p, const ht_layer_f32* layer, float* const* states, int64_t n_states, ht_error* err)
{
    int64_t n = 0;
    for (int64_t s = 0; s < n_states; s++) {
        for (int64_t k = 0; k < p->n_chunks; k++) { p->parts[n++] = states[s] + k * p->n_ctx * p->run.hparams.n_embd; }
    }
    return ht_layer_runner_forward(&p->run, layer, p->parts, n, err);
}

/* The clean forward pass of layer `index`, with the inputs of all chunks kept; `y` gets its output. */
static void forward_keeping_inputs(prober* p, const ht_layer_f32* layer, float* y)
{
    const int64_t n = p->n_ctx * p->run.hparams.n_embd;
#pragma omp parallel for schedule(dynamic, 1) num_threads(p->run.ctx->n_threads)
    for (int64_t k = 0; k < p->n_chunks; k++) { ht_layer_forward(layer, ht_layer_runner_space(&p->run, omp_get_thread_num(), k), p->clean + k * n, y + k * n); }
}

static ht_status probe_layer(prober* p, int64_t index, ht_error* err)
{
    ht_status         st    = HT_STATUS_OK;
    const ht_hparams* h     = &p->run.hparams;
    const int         threads = p->run.ctx->n_threads;
    const int64_t     n_tokens = p->n_chunks * p->n_ctx;
    ht_layer_f32      layer = { 0 };
    float *           y = malloc((size_t)p->n_x * sizeof *y), *trial = malloc((size_t)p->n_x * sizeof *trial), *kept = NULL;
    double            at_linear[HT_LINEAR_COUNT];
    HT_CHECK(y && trial, NOMEM, "states");
    HT_TRY(ht_layer_runner_read(&p->run, &layer, index, err));
    HT_TRY(sweep(p, &layer, p->states, index + 1, err)); /* errors from below */
    forward_keeping_inputs(p, &layer, y);
    for (int l = 0; l < HT_LINEAR_COUNT; l++) { /* what errors do at the linear's own output */
        const ht_layer_linear* w = &layer.linears[l];
        const float*           x = ht_layer_input(ht_layer_runner_space(&p->run, 0, 0), (ht_linear_id)l);
        make_noise(w->w, w->n_rows, w->n_cols, seed_of(p, index, l), threads, p->noise);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
        for (int64_t k = 0; k < p->n_chunks; k++) {
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)p->n_ctx, (int)w->n_rows, (int)w->n_cols, 1.0f, x + k * p->n_ctx * w->n_cols, (int)w->n_cols, p->noise,
                        (int)w->n_cols, 0.0f, p->outputs + k * p->n_ctx * w->n_rows, (int)w->n_rows);
        }
        at_linear[l] = mean_square_distance(p->outputs, NULL, n_tokens, w->n_rows);
    }
    for (int l = 0; l < HT_LINEAR_COUNT; l++) { /* and at the layer's */
        ht_layer_linear* w = &layer.linears[l];
        make_noise(w->w, w->n_rows, w->n_cols, seed_of(p, index, l), threads, p->noise);
        kept = w->w;
        for (int64_t i = 0; i < w->n_rows * w->n_cols; i++) { p->noise[i] += kept[i]; }
        w->w = p->noise;
        memcpy(trial, p->clean, (size_t)p->n_x * sizeof *trial);
        st   = sweep(p, &layer, &trial, 1, err);
        w->w = kept;
        if (st != HT_STATUS_OK) { goto done; }
        p->share[index * HT_LINEAR_COUNT + l] = at_linear[l] > 0.0 ? mean_square_distance(trial, y, n_tokens, h->n_embd) / at_linear[l] : 0.0;
    }
    for (int l = 0; l < HT_LINEAR_COUNT; l++) { /* all at once: the layer's own probe */
        ht_layer_linear* w = &layer.linears[l];
        make_noise(w->w, w->n_rows, w->n_cols, seed_of(p, index, l), threads, p->noise);
        for (int64_t i = 0; i < w->n_rows * w->n_cols; i++) { w->w[i] += p->noise[i]; }
    }
    HT_TRY(state_create(p, index + 1, p->clean, err));
    HT_TRY(sweep(p, &layer, &p->states[index + 1], 1, err));
    p->energy[index + 1] = mean_square_distance(p->states[index + 1], y, n_tokens, h->n_embd);
    memcpy(p->clean, y, (size_t)p->n_x * sizeof *y);
    HT_CHECK(ht_find_nonfinite(y, p->n_x) == p->n_x, NUMERIC, "the hidden state is not finite at layer %" PRId64, index);
done:
    ht_layer_deinit(&layer);
    free(y);
    free(trial);
    return st;
}

/* KL divergence over energy, per state. */
static ht_status divergences(prober* p, double* per_energy, ht_error* err)
{
    ht_status         st = HT_STATUS_OK;
    const ht_hparams* h  = &p->run.hparams;
    const int64_t     n_tokens = p->n_chunks * p->n_ctx, n_states = h->n_layers + 1, size = BLOCK_TOKENS * h->n_vocab;
    float *           clean = malloc((size_t)size * sizeof *clean), *base = malloc((size_t)size * sizeof *base), *other = malloc((size_t)size * sizeof *other);
    double            kl[BLOCK_TOKENS];
    HT_CHECK(clean && base && other, NOMEM, "logits of %d tokens", BLOCK_TOKENS);
    for (int64_t from = 0; from < n_tokens; from += BLOCK_TOKENS) {
        const int64_t m = n_tokens - from < BLOCK_TOKENS ? n_tokens - from : BLOCK_TOKENS;
        HT_CHECK(!ht_cancelled(p->run.ctx), CANCELLED, "interrupted; --resume goes on from here");
        HT_TRY(ht_layer_runner_logits(&p->run, p->clean + from * h->n_embd, m, clean, err));
        for (int64_t s = 0; s < n_states; s++) {
            memcpy(base, clean, (size_t)(m * h->n_vocab) * sizeof *base); /* the divergence leaves probabilities there */
            HT_TRY(ht_layer_runner_logits(&p->run, p->states[s] + from * h->n_embd, m, other, err));
            ht_logits_divergence(&p->run, base, other, m, kl);
            for (int64_t t = 0; t < m; t++) { per_energy[s] += kl[t] / (double)n_tokens; }
        }
    }
    for (int64_t s = 0; s < n_states; s++) { per_energy[s] = p->energy[s] > 0.0 && per_energy[s] > 0.0 ? per_energy[s] / p->energy[s] : 0.0; }
done:
    free(clean);
    free(base);
    free(other);
    return st;
}

/* The beginnings of up to PROBE_CHUNKS fitted chunks, spread evenly: ids (n_chunks, n_ctx), owned by the caller. */
static int32_t* pick_tokens(const ht_calib_texts* texts, int64_t n_ctx, int64_t* n_chunks)
{
    int32_t* ids      = malloc((size_t)(PROBE_CHUNKS * n_ctx) * sizeof *ids);
    int64_t  n_fitted = 0, seen = 0;
    *n_chunks = 0;
    for (int64_t k = 0; k < texts->n_chunks; k++) { n_fitted += !texts->is_held_out[k]; }
    const int64_t wanted = n_fitted < PROBE_CHUNKS ? n_fitted : PROBE_CHUNKS;
    for (int64_t k = 0; ids && k < texts->n_chunks; k++) {
        if (texts->is_held_out[k]) { continue; }
        if (*n_chunks < wanted && seen * wanted >= *n_chunks * n_fitted) { memcpy(ids + (*n_chunks)++ * n_ctx, texts->ids + k * texts->n_ctx, (size_t)n_ctx * sizeof *ids); }
        seen++;
    }
    return ids;
}

ht_status ht_probe_run(const ht_source* source, const ht_calib_texts* texts, const ht_ctx* ctx, double* factors, ht_error* err)
{
    ht_status     st  = HT_STATUS_OK;
    prober        p   = { .n_ctx = texts->n_ctx < PROBE_CTX ? texts->n_ctx : PROBE_CTX };
    int32_t*      ids = pick_tokens(texts, p.n_ctx, &p.n_chunks);
    float*        errors = NULL;
    double*       per_energy = NULL;
    HT_CHECK(ids, NOMEM, "tokens");
    HT_TRY(ht_layer_runner_init(&p.run, source, p.n_ctx, PROBE_CHUNKS, ctx, err));
    const ht_hparams* h = &p.run.hparams;
    const int64_t     n_tokens = p.n_chunks * p.n_ctx, n_attended = h->n_heads * (h->head_dim > h->head_dim_v ? h->head_dim : h->head_dim_v);
    const int64_t     widest = h->n_ff > n_attended ? h->n_ff : n_attended, rows = widest > h->n_embd ? widest : h->n_embd;
    p.n_x     = n_tokens * h->n_embd;
    p.clean   = malloc((size_t)p.n_x * sizeof *p.clean);
    p.states  = calloc((size_t)h->n_layers + 1, sizeof *p.states);
    p.parts   = malloc((size_t)((h->n_layers + 1) * p.n_chunks) * sizeof *p.parts);
    p.energy  = calloc((size_t)h->n_layers + 1, sizeof *p.energy);
    p.share   = calloc((size_t)(h->n_layers * HT_LINEAR_COUNT) + 1, sizeof *p.share);
    p.noise   = malloc((size_t)(rows * rows) * sizeof *p.noise); /* at least as large as any matrix */
    p.outputs = malloc((size_t)(n_tokens * rows) * sizeof *p.outputs);
    errors    = malloc((size_t)p.n_x * sizeof *errors);
    per_energy = calloc((size_t)h->n_layers + 1, sizeof *per_energy);
    HT_CHECK(p.clean && p.states && p.parts && p.energy && p.share && p.noise && p.outputs && errors && per_energy, NOMEM, "states of %" PRId64 " tokens", n_tokens);
    HT_TRY(ht_layer_runner_embed(&p.run, ids, n_tokens, p.clean, err));
    make_noise(p.clean, n_tokens, h->n_embd, seed_of(&p, h->n_layers, 0), ctx->n_threads, errors);
    HT_TRY(state_create(&p, 0, p.clean, err));
    for (int64_t i = 0; i < p.n_x; i++) { p.states[0][i] += errors[i]; }
    p.energy[0] = mean_square_distance(p.states[0], p.clean, n_tokens, h->n_embd);
    for (int64_t i = 0; i < h->n_layers; i++) {
        HT_CHECK(!ht_cancelled(ctx), CANCELLED, "interrupted; --resume goes on from here");
        HT_TRY(probe_layer(&p, i, err));
        ht_progress(ctx, "probing", (uint64_t)i + 1, (uint64_t)h->n_layers);
    }
    HT_TRY(divergences(&p, per_energy, err));
    for (int64_t i = 0; i < h->n_layers; i++) {
        for (int l = 0; l < HT_LINEAR_COUNT; l++) { factors[i * HT_LINEAR_COUNT + l] = 2.0 * per_energy[i + 1] * p.share[i * HT_LINEAR_COUNT + l]; }
    }
    factors[h->n_layers * HT_LINEAR_COUNT] = 2.0 * per_energy[0];
done:
    for (int64_t s = 0; p.states && s <= p.run.hparams.n_layers; s++) { free(p.states[s]); }
    free(p.states);
    free(p.clean);
    free(p.parts);
    free(p.energy);
    free(p.share);
    free(p.noise);
    free(p.outputs);
    free(errors);
    free(per_energy);
    free(ids);
    if (p.run.ctx) { ht_layer_runner_deinit(&p.run); }
    return st;
}
