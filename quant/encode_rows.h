/*
 * The four shapes of a block format, each as one driver over a row; an encode_<stem>.c names its constants and its packing, no more.
 *
 *   symmetric     x = d * level                            Q4_0 Q5_0 IQ4_NL
 *   affine        x = d * level + m                        Q4_1 Q5_1
 *   k_symmetric   x = d * sc[g] * level                    Q3_K Q6_K IQ4_XS
 *   k_affine      x = d * sc[g] * level - dmin * mn[g]     Q2_K Q4_K Q5_K
 *
 * All of them first find real-valued scales per group (scale_search.h). The K shapes then round twice: the super-block's d and dmin to halves,
 * and each group's scale to a small whole number, taken among the neighbours of the nearest by the error that remains; at last d and dmin are
 * fitted to the codes by least squares, and kept if the super-block gains.
 *
 * For the encoders of quant/ only (see lanes.h). HT_ENCODER gives an encoder its name: the reference, unless the includer compiles the same
 * source for an instruction set.
 */
#ifndef HT_QUANT_ENCODE_ROWS_H
#define HT_QUANT_ENCODE_ROWS_H

#include "quant/block_pack.h"
#include "quant/encode.h"
#include "quant/scale_search.h"

#ifndef HT_ENCODER
#define HT_ENCODER(stem) ht_##stem##_encode_row_ref
#endif

enum { ROW_REFITS = 1, ROW_BLOCK = 32, ROW_SUPER = 256, ROW_SUPER_GROUPS_MAX = 16 };

/* --- blocks of 32 under half-precision scales ------------------------------------------------------------------------------ */

typedef void (*ht_pack_fn)(void* block, const ht_block_parts* parts);

/* A block of 32 under one scale. */
HT_INLINE void pack_plain(ht_pack_fn pack, void* block, uint16_t d, uint16_t m, const uint8_t* codes)
{
    ht_block_parts parts;
    parts.d = d;
    parts.m = m;
    memcpy(parts.codes, codes, ROW_BLOCK);
    pack(block, &parts);
}

HT_INLINE void encode_row_symmetric(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance,
                                    ht_plain_weights plain, ht_levels levels, ht_scale_range range, size_t block_bytes,
                                    ht_pack_fn pack)
{
    uint8_t*    out                 = blocks;
    const float no_min[TILE_GROUPS] = { 0 };
    for (int64_t i = 0; i < n_elems; i += TILE_GROUPS * ROW_BLOCK) {
        const int64_t n_left = (n_elems - i) / ROW_BLOCK;
        const int     n      = n_left < TILE_GROUPS ? (int)n_left : TILE_GROUPS;
        ht_tile       t;
        float         scale[TILE_GROUPS];
        uint16_t      d[TILE_GROUPS];
        uint8_t       codes[TILE_GROUPS * ROW_BLOCK];
        tile_load(&t, ROW_BLOCK, x + i, importance ? importance + i : NULL, plain, n);
        fit_symmetric(&t, ROW_BLOCK, levels, range, scale);
        for (int g = 0; g < TILE_GROUPS; g++) {
            d[g]     = scale_to_f16(scale[g] * t.x_max[g]);
            scale[g] = ht_f16_to_f32(d[g]) / t.x_max[g];
        }
        tile_codes(&t, ROW_BLOCK, levels, scale, no_min, codes);
        for (int g = 0; g < n; g++, out += block_bytes) { pack_plain(pack, out, d[g], 0, codes + g * ROW_BLOCK); }
    }
}

/* Weighted mean of a group, in units of x_max. */
HT_INLINE float tile_mean(const ht_tile* t, int group, int g)
{
    float w = 0.0f, wx = 0.0f;
    for (int i = 0; i < group; i++) {
        w += t->w[i][g];
        wx += t->w[i][g] * t->x[i][g];
    }
    return wx / w;
}

HT_INLINE void encode_row_affine(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance, float high,
                                 ht_end_range range, size_t block_bytes, ht_pack_fn pack)
{
    uint8_t*        out    = blocks;
    const ht_levels levels = { 0.0f, high, LEVELS_WHOLE };
    for (int64_t i = 0; i < n_elems; i += TILE_GROUPS * ROW_BLOCK) {
        const int64_t n_left = (n_elems - i) / ROW_BLOCK;
        const int     n      = n_left < TILE_GROUPS ? (int)n_left : TILE_GROUPS;
        ht_tile       t;
        float         scale[TILE_GROUPS], min[TILE_GROUPS];
        uint16_t      d[TILE_GROUPS], m[TILE_GROUPS];
        uint8_t       codes[TILE_GROUPS * ROW_BLOCK];
        tile_load(&t, ROW_BLOCK, x + i, importance ? importance + i : NULL, PLAIN_EVEN, n);
        fit_affine(&t, ROW_BLOCK, high, false, range, scale, min);
        for (int g = 0; g < TILE_GROUPS; g++) {
            d[g] = scale_to_f16(scale[g] * t.x_max[g]);
            if (d[g] == 0) { min[g] = tile_mean(&t, ROW_BLOCK, g); } /* equal values, or too close for a half: m alone */
            m[g]     = scale_to_f16(min[g] * t.x_max[g]);
            scale[g] = ht_f16_to_f32(d[g]) / t.x_max[g];
            min[g]   = ht_f16_to_f32(m[g]) / t.x_max[g];
        }
        tile_codes(&t, ROW_BLOCK, levels, scale, min, codes);
        for (int g = 0; g < n; g++, out += block_bytes) { pack_plain(pack, out, d[g], m[g], codes + g * ROW_BLOCK); }
    }
}

/* --- super-blocks of 256 --------------------------------------------------------------------------------------------------- */

/* What the groups of a tile have in common within their super-blocks. */
typedef struct ht_super {
    float unit;                      /* largest x_max of its groups                          */
    float x_ratio[TILE_GROUPS];      /* x_max of a group / unit                              */
    float importance[TILE_GROUPS];   /* w_max of a group / largest of its groups, or all one */
} ht_super;

/* Groups first … first + n - 1 of the tile. */
HT_INLINE void super_init(ht_super* s, const ht_tile* t, int first, int n)
{
    float unit = TILE_X_MIN, w_max = 0.0f;
    for (int g = first; g < first + n; g++) {
        unit  = t->x_max[g] > unit ? t->x_max[g] : unit;
        w_max = t->w_max[g] > w_max ? t->w_max[g] : w_max;
    }
    s->unit = unit;
    const float inverse = 1.0f / (w_max > TILE_W_MIN ? w_max : TILE_W_MIN);
    for (int g = 0; g < n; g++) {
        s->x_ratio[g]    = t->x_max[first + g] / unit;
        s->importance[g] = w_max > 0.0f ? t->w_max[first + g] * inverse : 1.0f;
    }
}

typedef struct ht_k_shape {
    int       group;            /* elements per group: 16 or 32         */
    ht_levels levels;
    float     sc_low, sc_high;  /* range of the groups' whole scales    */
} ht_k_shape;

/* A tile's whole scales under given d: their values, and per group the sums that a refit of d needs. */
typedef struct ht_k_choice {
    float d[TILE_GROUPS], dmin[TILE_GROUPS]; /* of the group's super-block, in units of x_max */
    float sc[TILE_GROUPS], mn[TILE_GROUPS];
    float error[TILE_GROUPS];
    float xl[TILE_GROUPS], ll[TILE_GROUPS], l[TILE_GROUPS], w[TILE_GROUPS], x[TILE_GROUPS];
} ht_k_choice;

/*
 * Whole scales near scale / d and -min / dmin, the best of the nearest and its neighbours by the error left after rounding the elements anew;
 * then the sums under the best.
 */
HT_INLINE void k_choose(ht_k_choice* c, const ht_tile* t, ht_k_shape shape, bool affine, const float* scale, const float* min)
{
    for (int v = 0; v < TILE_GROUPS; v += HT_LANES) {
        const ht_lanes zero = { 0 }, d = lanes_load(c->d + v), dmin = lanes_load(c->dmin + v);
        const ht_lanes sc_near = lanes_round(lanes_clamp(lanes_load(scale + v) * lanes_inverse_or_zero(d), shape.sc_low, shape.sc_high));
        const ht_lanes mn_near =
            affine ? lanes_round(lanes_clamp(-lanes_load(min + v) * lanes_inverse_or_zero(dmin), 0.0f, shape.sc_high)) : zero;
        ht_lanes best_error = lanes_set(0x1p120f), best_sc = zero, best_mn = zero;
        for (int a = -1; a <= 1; a++) {
            const ht_lanes sc = lanes_clamp(sc_near + (float)a, shape.sc_low, shape.sc_high), step = sc * d;
            const ht_lanes inverse = lanes_inverse_or_zero(step);
            for (int b = affine ? -1 : 0; b <= (affine ? 1 : 0); b++) {
                const ht_lanes mn = affine ? lanes_clamp(mn_near + (float)b, 0.0f, shape.sc_high) : zero, shift = mn * dmin;
                ht_lanes       error = zero;
                for (int i = 0; i < shape.group; i++) {
                    const ht_lanes y = lanes_load(&t->x[i][v]) + shift, r = y - step * level_nearest(shape.levels, y * inverse);
                    error += lanes_load(&t->w[i][v]) * r * r;
                }
                best_sc    = lanes_select_less(error, best_error, sc, best_sc);
                best_mn    = lanes_select_less(error, best_error, mn, best_mn);
                best_error = lanes_min(error, best_error);
            }
        }
        const ht_lanes step = best_sc * d, shift = best_mn * dmin, inverse = lanes_inverse_or_zero(step);
        ht_line_sums   sums = { zero, zero, zero, zero, zero };
        for (int i = 0; i < shape.group; i++) {
            const ht_lanes x = lanes_load(&t->x[i][v]), w = lanes_load(&t->w[i][v]);
            sums.w += w;
            sums.x += w * x;
            line_sums_add(&sums, x, w, level_nearest(shape.levels, (x + shift) * inverse));
        }
        lanes_store(c->sc + v, best_sc);
        lanes_store(c->mn + v, best_mn);
        lanes_store(c->error + v, best_error);
        lanes_store(c->xl + v, sums.xl);
        lanes_store(c->ll + v, sums.ll);
        lanes_store(c->l + v, sums.l);
        lanes_store(c->w + v, sums.w);
        lanes_store(c->x + v, sums.x);
    }
}

typedef struct ht_half_pair {
    uint16_t d, dmin;
} ht_half_pair;

HT_INLINE void k_set_halves(ht_k_choice* c, const ht_tile* t, int first, int n, ht_half_pair half)
{
    const float d = ht_f16_to_f32(half.d), dmin = ht_f16_to_f32(half.dmin);
    for (int g = first; g < first + n; g++) {
        c->d[g]    = d / t->x_max[g];
        c->dmin[g] = dmin / t->x_max[g];
    }
}

HT_INLINE float k_error(const ht_k_choice* c, const ht_super* s, int first, int n)
{
    float error = 0.0f;
    for (int g = 0; g < n; g++) { error += s->importance[g] * s->x_ratio[g] * s->x_ratio[g] * c->error[first + g]; }
    return error;
}

/* d and dmin that fit the present codes best, everything else fixed. */
HT_INLINE ht_half_pair k_refit(const ht_k_choice* c, const ht_super* s, int first, int n, bool affine, ht_half_pair old)
{
    float ss = 0.0f, sm = 0.0f, mm = 0.0f, xs = 0.0f, xm = 0.0f;
    for (int g = 0; g < n; g++) {
        const int   k = first + g;
        const float w = s->importance[g], sc = c->sc[k], mn = -c->mn[k];
        ss += w * sc * sc * c->ll[k];
        sm += w * sc * mn * c->l[k];
        mm += w * mn * mn * c->w[k];
        xs += w * sc * c->xl[k] * s->x_ratio[g];
        xm += w * mn * c->x[k] * s->x_ratio[g];
    }
    const float det = ss * mm - sm * sm;
    if (affine && det > 1e-5f * ss * mm && det > 0.0f) {
        const float d = (mm * xs - sm * xm) / det, dmin = (ss * xm - sm * xs) / det;
        return (ht_half_pair){ scale_to_f16(d * s->unit), scale_to_f16((dmin > 0.0f ? dmin : 0.0f) * s->unit) };
    }
    if (ss > 0.0f && !affine) { old.d = scale_to_f16(xs / ss * s->unit); }
    return old;
}

/* A half that is 0 only for 0: below the smallest half the whole scales carry on by getting smaller. */
HT_INLINE uint16_t k_half(float value)
{
    const uint16_t half = scale_to_f16(value);
    return (half & 0x7FFFu) == 0 && value != 0.0f ? half | 1u : half;
}

/* First d and dmin: the largest scale and minimum take the end of the whole range. Of a signed range that is its longer, negative end. */
HT_INLINE ht_half_pair k_first_halves(const ht_super* s, int first, int n, ht_k_shape shape, bool affine, const float* scale, const float* min)
{
    float largest = 0.0f, largest_min = 0.0f;
    for (int g = 0; g < n; g++) {
        const float value = scale[first + g] * s->x_ratio[g], low = affine ? -min[first + g] * s->x_ratio[g] : 0.0f;
        if ((value < 0.0f ? -value : value) > (largest < 0.0f ? -largest : largest)) { largest = value; }
        if (low > largest_min) { largest_min = low; }
    }
    const float end = shape.sc_low < 0.0f ? shape.sc_low : shape.sc_high;
    return (ht_half_pair){ k_half(largest / end * s->unit), k_half(largest_min / shape.sc_high * s->unit) };
}

/* A super-block. */
HT_INLINE void pack_k(ht_pack_fn pack, void* block, ht_half_pair half, const float* sc, const float* mn, int n_groups, const uint8_t* codes)
{
    ht_block_parts parts;
    parts.d = half.d;
    parts.m = half.dmin;
    for (int g = 0; g < n_groups; g++) {
        parts.sc[g] = (int8_t)sc[g];
        parts.mn[g] = (int8_t)mn[g];
    }
    memcpy(parts.codes, codes, ROW_SUPER);
    pack(block, &parts);
}

HT_INLINE void encode_row_k(const float* restrict x, void* restrict blocks, int64_t n_elems, const float* restrict importance, ht_k_shape shape,
                            bool affine, ht_scale_range scales, ht_end_range ends, size_t block_bytes, ht_pack_fn pack)
{
    uint8_t*  out      = blocks;
    const int n_groups = ROW_SUPER / shape.group, supers_per_tile = TILE_GROUPS / n_groups;
    for (int64_t i = 0; i < n_elems; i += supers_per_tile * ROW_SUPER) {
        const int64_t n_left = (n_elems - i) / ROW_SUPER;
        const int     n      = n_left < supers_per_tile ? (int)n_left : supers_per_tile;
        ht_tile       t;
        ht_super      supers[2];
        ht_half_pair  halves[2], refit[2];
        ht_k_choice   choice, again;
        float         scale[TILE_GROUPS], min[TILE_GROUPS] = { 0 };
        uint8_t       codes[TILE_GROUPS * TILE_ELEMS_MAX];

        tile_load(&t, shape.group, x + i, importance ? importance + i : NULL, PLAIN_EVEN, n * n_groups);
        if (affine) { fit_affine(&t, shape.group, shape.levels.high, true, ends, scale, min); }
        else { fit_symmetric(&t, shape.group, shape.levels, scales, scale); }
        for (int k = 0; k < supers_per_tile; k++) {
            super_init(&supers[k], &t, k * n_groups, n_groups);
            halves[k] = k_first_halves(&supers[k], k * n_groups, n_groups, shape, affine, scale, min);
            k_set_halves(&choice, &t, k * n_groups, n_groups, halves[k]);
        }
        k_choose(&choice, &t, shape, affine, scale, min);
        for (int round = 0; round < ROW_REFITS; round++) {
            for (int k = 0; k < supers_per_tile; k++) {
                refit[k] = k_refit(&choice, &supers[k], k * n_groups, n_groups, affine, halves[k]);
                k_set_halves(&again, &t, k * n_groups, n_groups, refit[k]);
            }
            k_choose(&again, &t, shape, affine, scale, min);
            for (int k = 0; k < supers_per_tile; k++) {
                const int first = k * n_groups;
                if (!(k_error(&again, &supers[k], first, n_groups) < k_error(&choice, &supers[k], first, n_groups))) { continue; }
                halves[k] = refit[k];
                for (int g = first; g < first + n_groups; g++) {
                    choice.d[g] = again.d[g], choice.dmin[g] = again.dmin[g], choice.sc[g] = again.sc[g], choice.mn[g] = again.mn[g];
                    choice.error[g] = again.error[g], choice.xl[g] = again.xl[g], choice.ll[g] = again.ll[g];
                    choice.l[g] = again.l[g];
                }
            }
        }
        for (int g = 0; g < TILE_GROUPS; g++) {
            scale[g] = choice.d[g] * choice.sc[g];
            min[g]   = -choice.dmin[g] * choice.mn[g];
        }
        tile_codes(&t, shape.group, shape.levels, scale, min, codes);
        for (int k = 0; k < n; k++, out += block_bytes) {
            pack_k(pack, out, halves[k], choice.sc + k * n_groups, choice.mn + k * n_groups, n_groups, codes + k * ROW_SUPER);
        }
    }
}

#endif
