/*
 * The kernels of gptq_tile.h, included once per instruction set by gptq_<isa>.c, which defines GPTQ_KERNELS, the object to define.
 */
#include "quant/gptq_tile.h"
#include "quant/scale_search.h"

enum { FEED_COLUMNS = 32, PRODUCT_COLUMNS = 8, GROUP_MAX = 32 };

HT_INLINE ht_lanes at(const float* p, int64_t i, int v) { return lanes_load(p + i * ROW_TILE + v); }
HT_INLINE void     put(float* p, int64_t i, int v, ht_lanes x) { lanes_store(p + i * ROW_TILE + v, x); }

HT_INLINE ht_levels levels_of(const ht_block_format* f)
{
    const ht_level_kind kind = f->is_whole ? LEVELS_WHOLE : f->type == HT_TYPE_mxfp4 ? LEVELS_FP4 : LEVELS_IQ4;
    return (ht_levels){ f->levels[0], f->levels[f->n_levels - 1], kind };
}

/* --- products ---------------------------------------------------------------------------------------------------------------- */

/* Columns [t, t + n_t), n_t a constant up to 8: the accumulators stay in registers while the rows of d pass by once. */
HT_INLINE void add_product_columns(float* y, const float* matrix, int64_t stride, const float* d, int64_t n_k, int n_t)
{
    for (int v = 0; v < ROW_TILE; v += HT_LANES) {
        ht_lanes sum[PRODUCT_COLUMNS];
        for (int t = 0; t < n_t; t++) { sum[t] = (ht_lanes){ 0 }; }
        for (int64_t k = 0; k < n_k; k++) {
            const ht_lanes x = at(d, k, v);
            for (int t = 0; t < n_t; t++) { sum[t] = lanes_multiply_add(x, matrix[t * stride + k], sum[t]); }
        }
        for (int t = 0; t < n_t; t++) { put(y, t, v, at(y, t, v) + sum[t]); }
    }
}

static void add_product(float* y, const float* matrix, int64_t stride, const float* d, int64_t n_t, int64_t n_k)
{
    int64_t t = 0;
    for (; t + PRODUCT_COLUMNS <= n_t; t += PRODUCT_COLUMNS) {
        add_product_columns(y + t * ROW_TILE, matrix + t * stride, stride, d, n_k, PRODUCT_COLUMNS);
    }
    for (; t < n_t; t++) { add_product_columns(y + t * ROW_TILE, matrix + t * stride, stride, d, n_k, 1); }
}

/* --- error feedback ------------------------------------------------------------------------------------------------------------ */

/*
 * Columns go through in blocks of 32: inside a block the error of a column reaches the next ones at once; what the block does to the columns
 * behind it is added up in one product. e is kept negated, so that products add.
 */
HT_INLINE void feed_back_levels(const ht_tile_problem* p, float* w, float* e, ht_tile_state* s, ht_levels levels)
{
    const int64_t n = p->n;
    for (int64_t k0 = 0; k0 < n; k0 += FEED_COLUMNS) {
        for (int64_t k = k0; k < k0 + FEED_COLUMNS; k++) {
            const int64_t g       = k / p->format->group;
            const float   inverse = -1.0f / p->ut[k * n + k];
            for (int v = 0; v < ROW_TILE; v += HT_LANES) {
                const ht_lanes step = at(s->s, g, v), shift = at(s->m, g, v), x = at(w, k, v);
                const ht_lanes level = level_nearest(levels, (x - shift) * lanes_inverse_or_zero(step));
                put(s->level, k, v, level);
                put(e, k - k0, v, (x - (step * level + shift)) * inverse);
            }
            for (int64_t t = k + 1; t < k0 + FEED_COLUMNS; t++) {
                const float u = p->ut[t * n + k];
                for (int v = 0; v < ROW_TILE; v += HT_LANES) { put(w, t, v, at(w, t, v) + at(e, k - k0, v) * u); }
            }
        }
        const int64_t behind = k0 + FEED_COLUMNS;
        add_product(w + behind * ROW_TILE, p->ut + behind * n + k0, n, e, n - behind, FEED_COLUMNS);
    }
}

static void feed_back(const ht_tile_problem* p, float* w, float* e, ht_tile_state* s)
{
    const ht_levels levels = levels_of(p->format);
    switch (levels.kind) { /* so that each loop is compiled for its kind of levels */
        case LEVELS_IQ4: feed_back_levels(p, w, e, s, (ht_levels){ levels.low, levels.high, LEVELS_IQ4 }); break;
        case LEVELS_FP4: feed_back_levels(p, w, e, s, (ht_levels){ levels.low, levels.high, LEVELS_FP4 }); break;
        default:         feed_back_levels(p, w, e, s, (ht_levels){ levels.low, levels.high, LEVELS_WHOLE }); break;
    }
}

/* --- descent ------------------------------------------------------------------------------------------------------------------- */

/* One group of a tile while it is being improved. `change` collects what the group's values moved by. */
typedef struct group_work {
    const ht_tile_problem* p;
    ht_tile_state*         s;
    float*                 g;      /* gradient of the group's columns                 */
    float*                 change; /* per column of the group                         */
    float*                 level;  /* the group's columns                             */
    const float *          h, *inverse, *u;
    ht_levels              levels;
    int64_t                group, super;
    int                    n, v;   /* elements; first lane                            */
} group_work;

/* Scales that can be stored, next to a wish. */
HT_INLINE ht_lanes store_half(ht_lanes x)
{
    float lane[HT_LANES];
    lanes_store(lane, x);
    for (int i = 0; i < HT_LANES; i++) { lane[i] = ht_f16_to_f32(scale_to_f16(lane[i])); }
    return lanes_load(lane);
}

/* g -= H d for the columns of the group, and change += d. */
HT_INLINE void group_move(group_work* w, const float* d)
{
    for (int t = 0; t < w->n; t++) {
        ht_lanes sum = { 0 };
        for (int i = 0; i < w->n; i++) { sum += at(d, i, w->v) * w->h[t * w->n + i]; }
        put(w->g, t, w->v, at(w->g, t, w->v) - sum);
        put(w->change, t, w->v, at(w->change, t, w->v) + at(d, t, w->v));
    }
}

typedef struct group_scales {
    ht_lanes s, m, sc, mn;
} group_scales;

HT_INLINE group_scales scales_now(const group_work* w)
{
    const ht_tile_state* s = w->s;
    group_scales         r = { at(s->s, w->group, w->v), at(s->m, w->group, w->v), { 0 }, { 0 } };
    if (w->p->format->is_k) {
        r.sc = at(s->sc, w->group, w->v);
        r.mn = at(s->mn, w->group, w->v);
    }
    return r;
}

/* s and m from whole scales. */
HT_INLINE group_scales scales_whole(const group_work* w, ht_lanes sc, ht_lanes mn)
{
    const ht_block_format* f = w->p->format;
    group_scales           r;
    r.sc = lanes_clamp(sc, (float)f->sc_low, (float)f->sc_high);
    r.mn = f->has_min ? lanes_clamp(mn, 0.0f, (float)f->sc_high) : (ht_lanes){ 0 };
    r.s  = at(w->s->d, w->super, w->v) * r.sc;
    r.m  = f->has_min ? -(at(w->s->dmin, w->super, w->v) * r.mn) : (ht_lanes){ 0 };
    return r;
}

/* Neighbour (a, b) of the present scales. */
HT_INLINE group_scales scales_near(const group_work* w, group_scales now, int a, int b)
{
    const ht_block_format* f = w->p->format;
    if (f->is_k) { return scales_whole(w, now.sc + (float)a, now.mn + (float)b); }
    group_scales r = now;
    if (f->store == HT_SCALE_E8M0) {
        r.s = now.s * (a < 0 ? 0.5f : a > 0 ? 2.0f : 1.0f);
        return r;
    }
    r.s = store_half(now.s * (1.0f + 0.015f * (float)a));
    if (f->has_min) { r.m = store_half(now.m + 0.15f * (float)b * lanes_abs(now.s)); }
    return r;
}

HT_INLINE void scales_select(group_scales* best, ht_lanes gain, ht_lanes limit, group_scales offered)
{
    best->s  = lanes_select_less(gain, limit, offered.s, best->s);
    best->m  = lanes_select_less(gain, limit, offered.m, best->m);
    best->sc = lanes_select_less(gain, limit, offered.sc, best->sc);
    best->mn = lanes_select_less(gain, limit, offered.mn, best->mn);
}

HT_INLINE void scales_put(group_work* w, group_scales r)
{
    put(w->s->s, w->group, w->v, r.s);
    put(w->s->m, w->group, w->v, r.m);
    if (w->p->format->is_k) {
        put(w->s->sc, w->group, w->v, r.sc);
        put(w->s->mn, w->group, w->v, r.mn);
    }
}

/*
 * Other scales, with the codes rounded anew by error feedback inside the group. With t = q + H^-1 g, the values that would be best if they were free,
 * E changes by sum e_i^2 - g H^-1 g, where e_i are the errors that feedback meets (scaled by U).
 */
HT_INLINE void try_scales(group_work* w)
{
    const group_scales now = scales_now(w);
    ht_lanes           free_gain = { 0 }, target[GROUP_MAX], best_level[GROUP_MAX];
    group_scales       best = now;
    for (int i = 0; i < w->n; i++) {
        ht_lanes sum = { 0 };
        for (int t = 0; t < w->n; t++) { sum += at(w->g, t, w->v) * w->inverse[i * w->n + t]; }
        best_level[i] = at(w->level, i, w->v);
        target[i]     = now.s * best_level[i] + now.m + sum;
        free_gain += at(w->g, i, w->v) * sum;
    }
    const ht_lanes zero = { 0 };
    ht_lanes       best_delta = -(free_gain * 1e-6f); /* what rounding in these sums may pretend */
    const int      a_max = w->p->format->is_k || w->p->format->store == HT_SCALE_E8M0 ? 1 : 2, b_max = w->p->format->has_min ? 1 : 0;
    for (int a = -a_max; a <= a_max; a++) {
        for (int b = -b_max; b <= b_max; b++) {
            const group_scales r       = scales_near(w, now, a, b);
            const ht_lanes     inverse = lanes_inverse_or_zero(r.s);
            ht_lanes           value[GROUP_MAX], level[GROUP_MAX], sum = zero;
            for (int i = 0; i < w->n; i++) { value[i] = target[i]; }
            for (int i = 0; i < w->n; i++) {
                level[i]         = level_nearest(w->levels, (value[i] - r.m) * inverse);
                const ht_lanes e = (value[i] - (r.s * level[i] + r.m)) * (1.0f / w->u[i * w->n + i]);
                for (int t = i + 1; t < w->n; t++) { value[t] -= e * w->u[i * w->n + t]; }
                sum += e * e;
            }
            ht_lanes delta = sum - free_gain;
            delta          = lanes_select_less(zero, lanes_abs(r.s), delta, zero);
            for (int i = 0; i < w->n; i++) { best_level[i] = lanes_select_less(delta, best_delta, level[i], best_level[i]); }
            scales_select(&best, delta, best_delta, r);
            best_delta = lanes_min(delta, best_delta);
        }
    }
    float d[GROUP_MAX * ROW_TILE];
    for (int i = 0; i < w->n; i++) {
        put(d, i, w->v, (best.s * best_level[i] + best.m) - (now.s * at(w->level, i, w->v) + now.m));
        put(w->level, i, w->v, best_level[i]);
    }
    scales_put(w, best);
    group_move(w, d);
}

/* One code after the other to where it is best with all others fixed. */
HT_INLINE void try_codes(group_work* w)
{
    const group_scales now = scales_now(w);
    const ht_lanes     inverse = lanes_inverse_or_zero(now.s), zero = { 0 };
    for (int i = 0; i < w->n; i++) {
        const float    h     = w->h[i * w->n + i];
        const ht_lanes g     = at(w->g, i, w->v), old = at(w->level, i, w->v);
        const ht_lanes level = level_nearest(w->levels, old + g * (1.0f / h) * inverse);
        ht_lanes       d     = now.s * (level - old);
        const ht_lanes delta = d * (d * h - 2.0f * g);
        d = lanes_select_less(delta, zero, d, zero);
        put(w->level, i, w->v, lanes_select_less(delta, zero, level, old));
        for (int t = 0; t < w->n; t++) { put(w->g, t, w->v, at(w->g, t, w->v) - d * w->h[t * w->n + i]); }
        put(w->change, i, w->v, at(w->change, i, w->v) + d);
    }
}

/* Scale and minimum by least squares with the codes fixed, then the nearest that can be stored. */
HT_INLINE void try_refit(group_work* w)
{
    const ht_block_format* f = w->p->format;
    const group_scales     now = scales_now(w);
    const ht_lanes         zero = { 0 };
    ht_lanes               ll = zero, l1 = zero, gl = zero, g1 = zero;
    float                  ones = 0.0f;
    if (f->store == HT_SCALE_E8M0) { return; }
    for (int i = 0; i < w->n; i++) {
        ht_lanes hl  = zero;
        float    row = 0.0f;
        for (int t = 0; t < w->n; t++) {
            hl += at(w->level, t, w->v) * w->h[i * w->n + t];
            row += w->h[i * w->n + t];
        }
        const ht_lanes l = at(w->level, i, w->v), g = at(w->g, i, w->v);
        ll += l * hl;
        l1 += hl;
        gl += l * g;
        g1 += g;
        ones += row;
    }
    ht_lanes ds = gl / lanes_max(ll, lanes_set(1e-30f)), dm = zero;
    if (f->has_min) {
        const ht_lanes det = ll * ones - l1 * l1, floor = ll * (1e-5f * ones), inverse = 1.0f / lanes_max(det, lanes_set(1e-30f));
        ds = lanes_select_less(floor, det, (gl * ones - g1 * l1) * inverse, zero);
        dm = lanes_select_less(floor, det, (ll * g1 - l1 * gl) * inverse, zero);
    }
    group_scales r = now;
    if (f->is_k) {
        const ht_lanes sc = lanes_round(lanes_clamp((now.s + ds) * lanes_inverse_or_zero(at(w->s->d, w->super, w->v)), (float)f->sc_low, (float)f->sc_high));
        ht_lanes       mn = zero;
        if (f->has_min) {
            mn = lanes_round(lanes_clamp(-(now.m + dm) * lanes_inverse_or_zero(at(w->s->dmin, w->super, w->v)), 0.0f, (float)f->sc_high));
        }
        r = scales_whole(w, sc, mn);
    } else {
        r.s = store_half(now.s + ds);
        if (f->has_min) { r.m = store_half(now.m + dm); }
    }
    const ht_lanes da = r.s - now.s, db = r.m - now.m;
    const ht_lanes delta = da * da * ll + 2.0f * (da * db * l1) + db * db * ones - 2.0f * (da * gl + db * g1);
    group_scales   best  = now;
    scales_select(&best, delta, zero, r);
    float d[GROUP_MAX * ROW_TILE];
    for (int i = 0; i < w->n; i++) { put(d, i, w->v, (best.s - now.s) * at(w->level, i, w->v) + (best.m - now.m)); }
    scales_put(w, best);
    group_move(w, d);
}

/* What moved in columns [k, k + n) reaches the gradient of all other columns. `change` is used up. */
HT_INLINE void spread_change(const ht_tile_problem* p, float* g, float* change, int64_t k, int n)
{
    for (int i = 0; i < n * ROW_TILE; i++) { change[i] *= -p->keep; }
    add_product(g, p->hessian + k, p->n, change, k, n);
    add_product(g + (k + n) * ROW_TILE, p->hessian + (k + n) * p->n + k, p->n, change, p->n - k - n, n);
}

/* Group by group, the gradient of the group always up to date with all that went before. */
HT_INLINE void descend_levels(const ht_tile_problem* p, float* g, float* change, ht_tile_state* s, ht_levels levels, int n)
{
    for (int64_t group = 0; group < p->n / n; group++) {
        const int64_t k = group * n;
        for (int i = 0; i < n * ROW_TILE; i++) { change[i] = 0.0f; }
        for (int v = 0; v < ROW_TILE; v += HT_LANES) {
            group_work w = { p, s, g + k * ROW_TILE, change, s->level + k * ROW_TILE, p->blocks.h + group * n * n, p->blocks.inverse + group * n * n,
                             p->blocks.u + group * n * n, levels, group, k / p->format->block, n, v };
            try_scales(&w);
            try_codes(&w);
            try_refit(&w);
        }
        spread_change(p, g, change, k, n);
    }
}

static void descend(const ht_tile_problem* p, float* g, float* change, ht_tile_state* s)
{
    const ht_levels levels = levels_of(p->format);
    const int       n      = p->format->group;
    switch (levels.kind) {
        case LEVELS_IQ4: descend_levels(p, g, change, s, (ht_levels){ levels.low, levels.high, LEVELS_IQ4 }, n); break;
        case LEVELS_FP4: descend_levels(p, g, change, s, (ht_levels){ levels.low, levels.high, LEVELS_FP4 }, n); break;
        default:         descend_levels(p, g, change, s, (ht_levels){ levels.low, levels.high, LEVELS_WHOLE }, n); break;
    }
}

extern const ht_gptq_kernels GPTQ_KERNELS;
const ht_gptq_kernels GPTQ_KERNELS = { add_product, feed_back, descend };
