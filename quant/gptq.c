#include "quant/gptq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/half.h"
#include "formats/block_mxfp4.h"
#include "formats/decode.h"
#include "quant/encode.h"
#include "quant/gptq_tile.h"
#include "quant/hessian.h"

struct ht_rounding {
    ht_round_options options;
    int64_t          n;
    const float*     hessian;
    float*           importance; /* n                                  */
    float*           ut;         /* (n, n)                             */
    float*           diagonal;   /* n, damped                          */
    ht_group_blocks  blocks[2];  /* for groups of 16 and 32            */
};

/* Rows of a tile rounded in one way. */
typedef struct candidate {
    ht_tile_state state;
    double        error[ROW_TILE];
} candidate;

struct ht_round_worker {
    int64_t   n;
    float *   w, *q, *g;                    /* (n, 16)                             */
    float*    small;                        /* 32 columns                          */
    float*    rows;                         /* (16, n) row-major, decoded blocks   */
    candidate plain, best, other;
    void*     block;                        /* all of the above                    */
};

/* --- preparation ------------------------------------------------------------------------------------------------------------------ */

static void blocks_free(ht_group_blocks* b)
{
    free(b->h);
    free(b->inverse);
    free(b->u);
}

/* Diagonal blocks of the damped Hessian, their inverses and the factors of those. */
static ht_status blocks_init(ht_group_blocks* b, const float* damped, int64_t n, int group, ht_error* err)
{
    ht_status    st      = HT_STATUS_OK;
    const size_t n_bytes = (size_t)n * (size_t)group * sizeof(float);
    const int    g       = group;
    float        ut[32 * 32];
    b->h       = malloc(n_bytes);
    b->inverse = malloc(n_bytes);
    b->u       = malloc(n_bytes);
    HT_CHECK(b->h && b->inverse && b->u, NOMEM, "blocks of a Hessian of %lld columns", (long long)n);
    for (int64_t k = 0; k < n / g; k++) {
        float *h = b->h + k * g * g, *inverse = b->inverse + k * g * g, *u = b->u + k * g * g;
        for (int i = 0; i < g; i++) { memcpy(h + i * g, damped + (k * g + i) * n + k * g, (size_t)g * sizeof *h); }
        HT_TRY(ht_hessian_factor(h, g, 0.0, 0.0, NULL, ut, NULL, err));
        for (int i = 0; i < g; i++) {
            for (int j = 0; j < g; j++) {
                double sum = 0.0;
                for (int m = 0; m <= (i < j ? i : j); m++) { sum += (double)ut[i * g + m] * (double)ut[j * g + m]; }
                inverse[i * g + j] = (float)sum;
                u[i * g + j]       = ut[j * g + i];
            }
        }
    }
done:
    return st;
}

ht_status ht_rounding_create(ht_rounding** out, const float* hessian, int64_t n, const float* importance, const ht_round_options* options,
                             ht_rounding_notes* notes, ht_error* err)
{
    ht_status        st     = HT_STATUS_OK;
    ht_hessian_notes factor = { 0 };
    float*           damped = NULL;
    ht_rounding*     r      = calloc(1, sizeof *r);
    HT_CHECK(r, NOMEM, "rounding");
    r->options    = *options;
    r->n          = n;
    r->hessian    = hessian;
    r->importance = malloc((size_t)n * sizeof(float));
    r->diagonal   = malloc((size_t)n * sizeof(float));
    HT_CHECK(r->importance && r->diagonal, NOMEM, "rounding");
    for (int64_t i = 0; i < n; i++) {
        const float h    = hessian[i * n + i];
        r->importance[i] = importance ? importance[i] : h > 0.0f ? h : 0.0f;
    }
    if (options->method != HT_ROUND_IMPORTANCE) {
        r->ut  = malloc((size_t)n * (size_t)n * sizeof(float));
        damped = malloc((size_t)n * (size_t)n * sizeof(float));
        HT_CHECK(r->ut && damped, NOMEM, "a Hessian of %lld columns", (long long)n);
        HT_TRY(ht_hessian_factor(hessian, n, options->damping, options->shrink, damped, r->ut, &factor, err));
        for (int64_t i = 0; i < n; i++) { r->diagonal[i] = damped[i * n + i]; }
        if (n % 32 == 0) { HT_TRY(blocks_init(&r->blocks[1], damped, n, 32, err)); }
        if (n % 256 == 0) { HT_TRY(blocks_init(&r->blocks[0], damped, n, 16, err)); }
    }
    if (notes) { *notes = (ht_rounding_notes){ factor.damping_used, factor.n_dead }; }
    *out = r;
    r    = NULL;
done:
    free(damped);
    ht_rounding_free(r);
    return st;
}

void ht_rounding_free(ht_rounding* r)
{
    if (!r) { return; }
    free(r->importance);
    free(r->ut);
    free(r->diagonal);
    blocks_free(&r->blocks[0]);
    blocks_free(&r->blocks[1]);
    free(r);
}

static float* take(float** at, int64_t n_columns)
{
    float* p = *at;
    *at += n_columns * ROW_TILE;
    return p;
}

static void candidate_place(candidate* c, float** at, int64_t n)
{
    const int64_t n_groups = n / 16 + 1, n_supers = n / 256 + 1;
    c->state = (ht_tile_state){ take(at, n), take(at, n_groups), take(at, n_groups), take(at, n_groups), take(at, n_groups), take(at, n_supers), take(at, n_supers) };
}

ht_round_worker* ht_round_worker_create(int64_t n_cols)
{
    ht_round_worker* w = calloc(1, sizeof *w);
    if (!w) { return NULL; }
    const int64_t n_candidate = n_cols + 4 * (n_cols / 16 + 1) + 2 * (n_cols / 256 + 1);
    w->n     = n_cols;
    w->block = aligned_alloc(64, (size_t)(4 * n_cols + 32 + 3 * n_candidate) * ROW_TILE * sizeof(float));
    if (!w->block) {
        free(w);
        return NULL;
    }
    float* at = w->block;
    w->w     = take(&at, n_cols);
    w->q     = take(&at, n_cols);
    w->g     = take(&at, n_cols);
    w->rows  = take(&at, n_cols);
    w->small = take(&at, 32);
    candidate_place(&w->plain, &at, n_cols);
    candidate_place(&w->best, &at, n_cols);
    candidate_place(&w->other, &at, n_cols);
    return w;
}

void ht_round_worker_free(ht_round_worker* w)
{
    if (!w) { return; }
    free(w->block);
    free(w);
}

/* --- tiles to and from rows ------------------------------------------------------------------------------------------------------- */

/* Rows beyond n_rows become zeros. */
static void load_tile(float* tile, const float* x, int64_t n, int64_t n_rows)
{
    for (int64_t r = 0; r < ROW_TILE; r++) {
        for (int64_t i = 0; i < n; i++) { tile[i * ROW_TILE + r] = r < n_rows ? x[r * n + i] : 0.0f; }
    }
}

static float scale_value(const ht_block_format* f, uint16_t stored)
{
    return f->store == HT_SCALE_E8M0 ? ht_e8m0_half_to_f32((uint8_t)stored) : ht_f16_to_f32(stored);
}

static uint16_t scale_stored(const ht_block_format* f, float value)
{
    if (f->store == HT_SCALE_F16) { return ht_f32_to_f16(value); }
    int e = 0;
    frexpf(value, &e); /* value = 2^(e - 1), and the exponent byte b stands for 2^(b - 128): ht_e8m0_half_to_f32 */
    e += 127;
    return (uint16_t)(e < 0 ? 0 : e > 254 ? 254 : e);
}

static void state_unpack(const ht_block_format* f, ht_tile_state* s, int64_t r, const uint8_t* blocks, int64_t n)
{
    const size_t block_bytes = (size_t)ht_type_get(f->type)->block_bytes;
    for (int64_t b = 0; b < n / f->block; b++) {
        ht_block_parts parts;
        f->unpack(blocks + (size_t)b * block_bytes, &parts);
        const float d = scale_value(f, parts.d), m = f->has_min ? ht_f16_to_f32(parts.m) : 0.0f;
        if (f->is_k) {
            s->d[b * ROW_TILE + r]    = d;
            s->dmin[b * ROW_TILE + r] = m;
        }
        for (int k = 0; k < f->block / f->group; k++) {
            const int64_t at = (b * (f->block / f->group) + k) * ROW_TILE + r;
            s->s[at] = f->is_k ? d * (float)parts.sc[k] : d;
            s->m[at] = f->is_k ? -(m * (float)parts.mn[k]) : m;
            if (f->is_k) {
                s->sc[at] = (float)parts.sc[k];
                s->mn[at] = (float)parts.mn[k];
            }
        }
        for (int i = 0; i < f->block; i++) { s->level[(b * f->block + i) * ROW_TILE + r] = f->levels[parts.codes[i]]; }
    }
}

static uint8_t level_code(const ht_block_format* f, float level)
{
    if (f->is_whole) { return (uint8_t)(level - f->levels[0]); }
    for (int c = 0; c < f->n_levels; c++) {
        if (f->levels[c] == level) { return (uint8_t)c; }
    }
    return 0;
}

static void state_pack(const ht_block_format* f, const ht_tile_state* s, int64_t r, uint8_t* blocks, int64_t n)
{
    const size_t block_bytes = (size_t)ht_type_get(f->type)->block_bytes;
    for (int64_t b = 0; b < n / f->block; b++) {
        ht_block_parts parts = { 0 };
        for (int k = 0; k < f->block / f->group; k++) {
            const int64_t at = (b * (f->block / f->group) + k) * ROW_TILE + r;
            parts.sc[k] = f->is_k ? (int8_t)s->sc[at] : 1;
            parts.mn[k] = f->is_k ? (int8_t)s->mn[at] : 0;
        }
        const int64_t at = b * ROW_TILE + r;
        parts.d = scale_stored(f, f->is_k ? s->d[at] : s->s[at]);
        parts.m = f->has_min ? ht_f32_to_f16(f->is_k ? s->dmin[at] : s->m[at]) : 0;
        for (int i = 0; i < f->block; i++) { parts.codes[i] = level_code(f, s->level[(b * f->block + i) * ROW_TILE + r]); }
        f->pack(blocks + (size_t)b * block_bytes, &parts);
    }
}

/* --- errors ------------------------------------------------------------------------------------------------------------------------ */

/* g = H (w - q); error = (w - q) . g */
static void tile_errors(const ht_gptq_kernels* kernels, const float* hessian, int64_t n, float* difference, float* g, double error[ROW_TILE])
{
    memset(g, 0, (size_t)n * ROW_TILE * sizeof *g);
    memset(error, 0, ROW_TILE * sizeof *error);
    kernels->add_product(g, hessian, n, difference, n, n);
    for (int64_t i = 0; i < n * ROW_TILE; i++) { error[i % ROW_TILE] += (double)difference[i] * (double)g[i]; }
}

/* q = w - (what the state stands for); g and errors follow. */
static void candidate_judge(const ht_tile_problem* p, const ht_gptq_kernels* kernels, ht_round_worker* w, candidate* c)
{
    const int group = p->format->group;
    for (int64_t i = 0; i < p->n; i++) {
        const float *s = c->state.s + i / group * ROW_TILE, *m = c->state.m + i / group * ROW_TILE, *level = c->state.level + i * ROW_TILE;
        for (int r = 0; r < ROW_TILE; r++) { w->q[i * ROW_TILE + r] = w->w[i * ROW_TILE + r] - (s[r] * level[r] + m[r]); }
    }
    tile_errors(kernels, p->hessian, p->n, w->q, w->g, c->error);
}

/* The gradient under the damped Hessian, from that under the plain one. */
static void damp_gradient(const ht_tile_problem* p, ht_round_worker* w)
{
    for (int64_t i = 0; i < p->n; i++) {
        const float extra = p->diagonal[i] - p->keep * p->hessian[i * p->n + i];
        for (int r = 0; r < ROW_TILE; r++) {
            w->g[i * ROW_TILE + r] = p->keep * w->g[i * ROW_TILE + r] + extra * w->q[i * ROW_TILE + r];
        }
    }
}

void ht_row_errors(const float* hessian, int64_t n, ht_round_worker* w, uint32_t cpu_features, const float* a, const float* b, int64_t n_rows,
                   double* errors)
{
    const ht_gptq_kernels* kernels = ht_gptq_kernels_get(cpu_features);
    for (int64_t r = 0; r < n_rows; r += ROW_TILE) {
        const int64_t n_here = n_rows - r < ROW_TILE ? n_rows - r : ROW_TILE;
        double        error[ROW_TILE];
        load_tile(w->w, a + r * n, n, n_here);
        load_tile(w->q, b + r * n, n, n_here);
        for (int64_t i = 0; i < n * ROW_TILE; i++) { w->q[i] = w->w[i] - w->q[i]; }
        tile_errors(kernels, hessian, n, w->q, w->g, error);
        memcpy(errors + r, error, (size_t)n_here * sizeof *error);
    }
}

/* --- rounding ------------------------------------------------------------------------------------------------------------------------ */

static void state_copy(const ht_tile_problem* p, ht_tile_state* to, const ht_tile_state* from)
{
    const size_t column = ROW_TILE * sizeof(float), groups = (size_t)(p->n / p->format->group) * column, supers = (size_t)(p->n / p->format->block) * column;
    memcpy(to->level, from->level, (size_t)p->n * column);
    memcpy(to->s, from->s, groups);
    memcpy(to->m, from->m, groups);
    if (!p->format->is_k) { return; }
    memcpy(to->sc, from->sc, groups);
    memcpy(to->mn, from->mn, groups);
    memcpy(to->d, from->d, supers);
    memcpy(to->dmin, from->dmin, supers);
}

static void copy_lane(float* to, const float* from, int64_t n_columns, int r)
{
    for (int64_t i = 0; i < n_columns; i++) { to[i * ROW_TILE + r] = from[i * ROW_TILE + r]; }
}

static void candidate_copy_row(const ht_tile_problem* p, candidate* to, const candidate* from, int r)
{
    const int64_t n_groups = p->n / p->format->group, n_supers = p->n / p->format->block;
    copy_lane(to->state.level, from->state.level, p->n, r);
    copy_lane(to->state.s, from->state.s, n_groups, r);
    copy_lane(to->state.m, from->state.m, n_groups, r);
    if (p->format->is_k) {
        copy_lane(to->state.sc, from->state.sc, n_groups, r);
        copy_lane(to->state.mn, from->state.mn, n_groups, r);
        copy_lane(to->state.d, from->state.d, n_supers, r);
        copy_lane(to->state.dmin, from->state.dmin, n_supers, r);
    }
    to->error[r] = from->error[r];
}

/* Importance rounding, then [error feedback,] descent. */
static void candidate_make(const ht_tile_problem* p, const ht_gptq_kernels* kernels, ht_round_worker* w, candidate* c, bool feed_back, int n_sweeps)
{
    state_copy(p, &c->state, &w->plain.state);
    if (feed_back) {
        memcpy(w->g, w->w, (size_t)p->n * ROW_TILE * sizeof(float)); /* g serves as the weights that feedback changes */
        kernels->feed_back(p, w->g, w->small, &c->state);
    }
    candidate_judge(p, kernels, w, c);
    for (int k = 0; k < n_sweeps; k++) {
        damp_gradient(p, w);
        kernels->descend(p, w->g, w->small, &c->state);
        candidate_judge(p, kernels, w, c);
    }
}

/* A row is taken as it is when its error is at most this share of that of importance rounding: such rows have not diverged. */
static const double guard_share = 0.8;

static void round_tile(const ht_rounding* r, const ht_tile_problem* p, const ht_gptq_kernels* kernels, ht_round_worker* w, int64_t n_rows,
                       ht_round_report* report)
{
    bool again = false;
    candidate_judge(p, kernels, w, &w->plain);
    candidate_make(p, kernels, w, &w->best, r->options.method == HT_ROUND_GPTQ, r->options.n_sweeps);
    for (int i = 0; i < n_rows; i++) { again |= !(w->best.error[i] <= guard_share * w->plain.error[i]); }
    if (again && r->options.method == HT_ROUND_GPTQ) { candidate_make(p, kernels, w, &w->other, false, r->options.n_sweeps > 0 ? r->options.n_sweeps : 1); }
    for (int i = 0; i < n_rows; i++) {
        if (!(w->best.error[i] <= guard_share * w->plain.error[i])) {
            report->n_guarded++;
            if (r->options.method == HT_ROUND_GPTQ && !(w->best.error[i] <= w->other.error[i])) { candidate_copy_row(p, &w->best, &w->other, i); }
            if (!(w->best.error[i] <= w->plain.error[i])) {
                candidate_copy_row(p, &w->best, &w->plain, i);
                report->n_importance++;
            }
        }
        report->error += w->best.error[i];
        report->error_importance += w->plain.error[i];
    }
}

void ht_round_rows(const ht_rounding* r, ht_round_worker* w, ht_type type, uint32_t cpu_features, const float* x, int64_t n_rows, void* blocks,
                   ht_round_report* report)
{
    const ht_block_format*  format    = ht_block_format_get(type);
    const ht_encode_row_fn  encode    = ht_encode_row_get(type, cpu_features);
    const ht_gptq_kernels*  kernels   = ht_gptq_kernels_get(cpu_features);
    const ht_type_info*     info      = ht_type_get((uint32_t)type);
    const size_t            row_bytes = (size_t)(r->n / info->block_elems) * (size_t)info->block_bytes;
    ht_round_report         here      = { .n_rows = n_rows };
    uint8_t*                out       = blocks;
    for (int64_t i = 0; i < n_rows; i++) { encode(x + i * r->n, out + (size_t)i * row_bytes, r->n, r->importance); }
    if (format && r->options.method != HT_ROUND_IMPORTANCE) {
        const ht_tile_problem p = { format, r->n, r->hessian, r->ut, r->diagonal, (float)(1.0 - r->options.shrink), r->blocks[format->group == 32] };
        for (int64_t i = 0; i < n_rows; i += ROW_TILE) {
            const int64_t n_here = n_rows - i < ROW_TILE ? n_rows - i : ROW_TILE;
            load_tile(w->w, x + i * r->n, r->n, n_here);
            for (int64_t k = 0; k < ROW_TILE; k++) { /* lanes without a row repeat the first: they cost nothing and cannot misbehave */
                state_unpack(format, &w->plain.state, k, out + (size_t)(i + (k < n_here ? k : 0)) * row_bytes, r->n);
            }
            round_tile(r, &p, kernels, w, n_here, &here);
            for (int64_t k = 0; k < n_here; k++) { state_pack(format, &w->best.state, k, out + (size_t)(i + k) * row_bytes, r->n); }
        }
    }
    if (!report) { return; }
    report->n_rows += here.n_rows;
    report->n_guarded += here.n_guarded;
    report->n_importance += here.n_importance;
    report->error += here.error;
    report->error_importance += here.error_importance;
}
