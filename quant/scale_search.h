/*
 * Tiles of groups, and the search for the scales of each group: the shared arithmetic of the searching encoders.
 *
 * A group is the 16 or 32 neighbours that share a scale. A tile holds 16 groups, element-major, so that a loop over the elements of a group
 * works on 16 groups at once (lanes.h):
 *
 *               group 0  group 1  …  group 15
 *     x[0]         x0       x0    …     x0           elements are divided by the largest magnitude of their group (x_max),
 *     x[1]         x1       x1    …     x1           weights by the largest weight of their group (w_max)
 *      …
 *
 * Within a tile all numbers are near one, so sums of squares neither overflow nor vanish for any finite input; scales found are in units
 * of x_max. A level is the number that a code stands for: a whole number between bounds, or one of IQ4_NL's table.
 *
 * For the encoders of quant/ only (see lanes.h).
 */
#ifndef HT_QUANT_SCALE_SEARCH_H
#define HT_QUANT_SCALE_SEARCH_H

#include <stdbool.h>

#include "formats/base/half.h"
#include "formats/block_iq4_nl.h"
#include "formats/block_mxfp4.h"
#include "quant/lanes.h"

enum { TILE_GROUPS = 16, TILE_ELEMS_MAX = 32 };

typedef struct ht_tile {
    _Alignas(64) float x[TILE_ELEMS_MAX][TILE_GROUPS];
    float w[TILE_ELEMS_MAX][TILE_GROUPS];
    float x_max[TILE_GROUPS];
    float w_max[TILE_GROUPS]; /* 0 for a group whose weights are all zero; the group's w are ones then */
} ht_tile;

/* Below this a group is as good as zero: no half-precision scale reaches so far down. Its inverse is finite. */
#define TILE_X_MIN 0x1p-100f
#define TILE_W_MIN 0x1p-126f

/*
 * Weights when there is no importance. Even: plain squared error. Large: mean square of the group + x^2, because an error in a large weight
 * moves the output more often than chance has it (SmolLM2-135M to Q4_0, 40 chunks of WikiText-2: mean KL 0.329 against 0.351 with even weights and
 * 0.364 of llama-quantize; perplexity 32.8, 35.0 and 33.1. For the K types and IQ4_NL even weights were better).
 */
typedef enum ht_plain_weights { PLAIN_EVEN, PLAIN_LARGE } ht_plain_weights;

HT_INLINE void tile_weigh_large(ht_tile* t, int group)
{
    for (int v = 0; v < TILE_GROUPS; v += HT_LANES) {
        ht_lanes sum = { 0 };
        for (int i = 0; i < group; i++) { sum += lanes_load(&t->x[i][v]) * lanes_load(&t->x[i][v]); }
        const ht_lanes mean = sum * (1.0f / (float)group);
        for (int i = 0; i < group; i++) { lanes_store(&t->w[i][v], mean + lanes_load(&t->x[i][v]) * lanes_load(&t->x[i][v])); }
    }
}

/* n_groups (1..16) groups of `group` elements each; the rest of the tile becomes zeros. Without importance `plain` decides. */
HT_INLINE void tile_load(ht_tile* t, int group, const float* restrict x, const float* restrict importance, ht_plain_weights plain, int n_groups)
{
    for (int g = 0; g < TILE_GROUPS; g++) {
        for (int i = 0; i < group; i++) { t->x[i][g] = g < n_groups ? x[g * group + i] : 0.0f; }
    }
    for (int v = 0; v < TILE_GROUPS; v += HT_LANES) {
        ht_lanes max = { 0 };
        for (int i = 0; i < group; i++) { max = lanes_max(max, lanes_abs(lanes_load(&t->x[i][v]))); }
        max = lanes_max(max, lanes_set(TILE_X_MIN));
        lanes_store(&t->x_max[v], max);
        const ht_lanes inverse = 1.0f / max;
        for (int i = 0; i < group; i++) { lanes_store(&t->x[i][v], lanes_load(&t->x[i][v]) * inverse); }
    }
    for (int g = 0; g < TILE_GROUPS; g++) {
        for (int i = 0; i < group; i++) { t->w[i][g] = importance && g < n_groups ? importance[g * group + i] : 1.0f; }
        t->w_max[g] = 1.0f;
    }
    if (!importance) {
        if (plain == PLAIN_LARGE) { tile_weigh_large(t, group); }
        return;
    }
    for (int v = 0; v < TILE_GROUPS; v += HT_LANES) {
        const ht_lanes zero = { 0 }, one = lanes_set(1.0f);
        ht_lanes       max = zero;
        for (int i = 0; i < group; i++) { max = lanes_max(max, lanes_load(&t->w[i][v])); }
        lanes_store(&t->w_max[v], max);
        const ht_lanes inverse = 1.0f / lanes_max(max, lanes_set(TILE_W_MIN));
        for (int i = 0; i < group; i++) {
            lanes_store(&t->w[i][v], lanes_select_less(zero, max, lanes_load(&t->w[i][v]) * inverse, one));
        }
    }
}

/* What codes stand for: whole numbers low … high, the 16 levels of IQ4_NL, or those of MXFP4 (doubled, as in its decoder). */
typedef enum ht_level_kind { LEVELS_WHOLE, LEVELS_IQ4, LEVELS_FP4 } ht_level_kind;

typedef struct ht_levels {
    float         low, high;
    ht_level_kind kind;
} ht_levels;

/* Middles between neighbouring IQ4 levels; a value on a middle takes the upper level. */
static const float iq4_middles[15] = { -115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                       7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f };

#if defined(__AVX512F__)
/*
 * The table's domain in 32 cells of width 8, -128 upward: no cell holds more than one middle (iq4_cell_middle; 999 where there is none), so one
 * comparison decides between the two levels a cell can mean.
 */
static const float iq4_cell_middle[32] = {
    999.0f, -115.5f, 999.0f, 999.0f, -93.5f, 999.0f, -74.0f, 999.0f,
    -57.0f, 999.0f, -42.0f, 999.0f, -28.5f, 999.0f, -16.0f, -4.5f,
    7.0f, 999.0f, 19.0f, 31.5f, 999.0f, 45.5f, 999.0f, 61.0f,
    999.0f, 79.0f, 999.0f, 999.0f, 101.0f, 999.0f, 999.0f, 999.0f,
};
static const float iq4_cell_below[32] = {
    -127.0f, -127.0f, -104.0f, -104.0f, -104.0f, -83.0f, -83.0f, -65.0f,
    -65.0f, -49.0f, -49.0f, -35.0f, -35.0f, -22.0f, -22.0f, -10.0f,
    1.0f, 13.0f, 13.0f, 25.0f, 38.0f, 38.0f, 53.0f, 53.0f,
    69.0f, 69.0f, 89.0f, 89.0f, 89.0f, 113.0f, 113.0f, 113.0f,
};
static const float iq4_cell_above[32] = {
    -127.0f, -104.0f, -104.0f, -104.0f, -83.0f, -83.0f, -65.0f, -65.0f,
    -49.0f, -49.0f, -35.0f, -35.0f, -22.0f, -22.0f, -10.0f, 1.0f,
    13.0f, 13.0f, 25.0f, 38.0f, 38.0f, 53.0f, 53.0f, 69.0f,
    69.0f, 89.0f, 89.0f, 89.0f, 113.0f, 113.0f, 113.0f, 113.0f,
};

HT_INLINE ht_lanes iq4_nearest(ht_lanes v)
{
    const __m512i cell = _mm512_cvttps_epi32((lanes_clamp(v, -128.0f, 127.0f) + 128.0f) * 0.125f);
#define CELL_LOOK_UP(table) _mm512_permutex2var_ps(_mm512_loadu_ps(table), cell, _mm512_loadu_ps((table) + 16))
    return lanes_select_less(v, CELL_LOOK_UP(iq4_cell_middle), CELL_LOOK_UP(iq4_cell_below), CELL_LOOK_UP(iq4_cell_above));
#undef CELL_LOOK_UP
}
#elif defined(__AVX2__)
/* Binary search: each comparison gives one bit of the code, and the bits so far pick the next middle. */
HT_INLINE ht_lanes iq4_nearest(ht_lanes v)
{
    const float*  m        = iq4_middles;
    const __m256  middle_1 = _mm256_setr_ps(m[1], m[5], m[9], m[13], 0, 0, 0, 0);
    const __m256  middle_0 = _mm256_setr_ps(m[0], m[2], m[4], m[6], m[8], m[10], m[12], m[14]);
    const __m256  levels_low = _mm256_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10), levels_high = _mm256_setr_ps(1, 13, 25, 38, 53, 69, 89, 113);
    const ht_lanes_int bit_3 = v >= m[7];
    const ht_lanes_int bit_2 = v >= lanes_select_less(v, lanes_set(m[7]), lanes_set(m[3]), lanes_set(m[11]));
    ht_lanes_int       code  = (bit_3 & 2) | (bit_2 & 1);
    const ht_lanes_int bit_1 = v >= (ht_lanes)_mm256_permutevar8x32_ps(middle_1, (__m256i)code);
    code                     = code << 1 | (bit_1 & 1);
    const ht_lanes_int bit_0 = v >= (ht_lanes)_mm256_permutevar8x32_ps(middle_0, (__m256i)code);
    const __m256i      low_3 = (__m256i)(code << 1 | (bit_0 & 1)); /* the look-up takes the low three bits */
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(levels_low, low_3), _mm256_permutevar8x32_ps(levels_high, low_3), (__m256)bit_3);
}
#else
HT_INLINE ht_lanes iq4_nearest(ht_lanes v)
{
    ht_lanes level = lanes_set(-127.0f);
    for (int k = 0; k < 15; k++) {
        const ht_lanes zero = { 0 }, step = lanes_set((float)(ht_iq4_values[k + 1] - ht_iq4_values[k]));
        level += lanes_select_less(v, lanes_set(iq4_middles[k]), zero, step);
    }
    return level;
}
#endif

/* 0 1 2 3 4 6 8 12 and their negatives: a step of 1 up to 4, of 2 up to 8, then of 4. */
HT_INLINE ht_lanes fp4_nearest(ht_lanes v)
{
    const ht_lanes one = lanes_set(1.0f), two = lanes_set(2.0f), four = lanes_set(4.0f), a = lanes_min(lanes_abs(v), lanes_set(12.0f));
    const ht_lanes step = lanes_select_less(a, four, one, lanes_select_less(a, lanes_set(8.0f), two, four));
    const ht_lanes level = lanes_round(a / step) * step;
    return lanes_select_less(v, lanes_set(0.0f), -level, level);
}

HT_INLINE ht_lanes level_nearest(ht_levels levels, ht_lanes v)
{
    switch (levels.kind) {
        case LEVELS_IQ4: return iq4_nearest(v);
        case LEVELS_FP4: return fp4_nearest(v);
        default:         return lanes_round(lanes_clamp(v, levels.low, levels.high));
    }
}

/* The codes of levels. */
HT_INLINE ht_lanes_int level_codes(ht_levels levels, ht_lanes level)
{
    const ht_lanes zero = { 0 };
    if (levels.kind == LEVELS_WHOLE) { return lanes_to_int(level - levels.low); }
    ht_lanes_int code = { 0 };
    if (levels.kind == LEVELS_IQ4) {
        for (int k = 0; k < 15; k++) { code -= level > iq4_middles[k]; }
        return code;
    }
    for (int k = 1; k < 8; k++) { code -= lanes_abs(level) >= (float)ht_fp4_values[k]; }
    return code | ((level < zero) & 8);
}

/* codes[g * group + i] of every element, for scale[g] and min[g] in units of x_max: x is near scale * level + min. */
HT_INLINE void tile_codes(const ht_tile* t, int group, ht_levels levels, const float* scale, const float* min, uint8_t* restrict codes)
{
    for (int v = 0; v < TILE_GROUPS; v += HT_LANES) {
        const ht_lanes inverse = lanes_inverse_or_zero(lanes_load(scale + v)), shift = lanes_load(min + v);
        for (int i = 0; i < group; i++) {
            int32_t code[HT_LANES];
            lanes_store_int(code, level_codes(levels, level_nearest(levels, (lanes_load(&t->x[i][v]) - shift) * inverse)));
            for (int k = 0; k < HT_LANES; k++) { codes[(v + k) * group + i] = (uint8_t)code[k]; }
        }
    }
}

/* error[g]: what is left of each group, weighted and squared, under scale[g]; in units of x_max and w_max. */
HT_INLINE void tile_errors(const ht_tile* t, int group, ht_levels levels, const float* scale, float* restrict error)
{
    for (int v = 0; v < TILE_GROUPS; v += HT_LANES) {
        const ht_lanes step = lanes_load(scale + v), inverse = lanes_inverse_or_zero(step);
        ht_lanes       sum  = { 0 };
        for (int i = 0; i < group; i++) {
            const ht_lanes x = lanes_load(&t->x[i][v]), r = x - step * level_nearest(levels, x * inverse);
            sum += lanes_load(&t->w[i][v]) * r * r;
        }
        lanes_store(error + v, sum);
    }
}

/* A finite half nearest to `scale`; too large ones stop at the largest half. */
HT_INLINE uint16_t scale_to_f16(float scale)
{
    const float max = 65504.0f;
    return ht_f32_to_f16(scale < -max ? -max : scale > max ? max : scale);
}

/* --- symmetric: x = scale * level ------------------------------------------------------------------------------------------ */

/* Inverse scales to try: ±(first + k * step), k < n, in levels per x_max; then `n_refine` rounds of least squares from the best. */
typedef struct ht_scale_range {
    float first, step;
    int   n, n_refine;
} ht_scale_range;

typedef struct ht_best_scale {
    ht_lanes gain, scale;
} ht_best_scale;

/* With xl = sum w x l and ll = sum w l^2 the best scale is xl / ll, and it lowers the error by xl^2 / ll. */
HT_INLINE void best_scale_offer(ht_best_scale* best, ht_lanes xl, ht_lanes ll)
{
    const ht_lanes scale = xl / lanes_max(ll, lanes_set(0x1p-100f)), gain = scale * xl;
    best->scale = lanes_select_less(best->gain, gain, scale, best->scale);
    best->gain  = lanes_max(best->gain, gain);
}

/* The scale of each group that, among those tried, leaves the least weighted squared error. May be negative; 0 for a group of zeros. */
HT_INLINE void fit_symmetric(const ht_tile* t, int group, ht_levels levels, ht_scale_range range, float* restrict scale)
{
    for (int v = 0; v < TILE_GROUPS; v += HT_LANES) {
        const ht_lanes zero = { 0 };
        ht_best_scale  best = { zero, zero };
        for (int k = 0; k < range.n; k++) {
            const float inverse = range.first + (float)k * range.step;
            ht_lanes    xl_up = zero, ll_up = zero, xl_down = zero, ll_down = zero;
            for (int i = 0; i < group; i++) {
                const ht_lanes x = lanes_load(&t->x[i][v]), w = lanes_load(&t->w[i][v]), y = x * inverse;
                const ht_lanes up = level_nearest(levels, y), down = level_nearest(levels, -y), w_up = w * up, w_down = w * down;
                xl_up += w_up * x;
                ll_up += w_up * up;
                xl_down += w_down * x;
                ll_down += w_down * down;
            }
            best_scale_offer(&best, xl_up, ll_up);
            best_scale_offer(&best, xl_down, ll_down);
        }
        for (int k = 0; k < range.n_refine; k++) {
            const ht_lanes inverse = lanes_inverse_or_zero(best.scale);
            ht_lanes       xl = zero, ll = zero;
            for (int i = 0; i < group; i++) {
                const ht_lanes x = lanes_load(&t->x[i][v]), level = level_nearest(levels, x * inverse), wl = lanes_load(&t->w[i][v]) * level;
                xl += wl * x;
                ll += wl * level;
            }
            best_scale_offer(&best, xl, ll);
        }
        lanes_store(scale + v, best.scale);
    }
}

/* --- affine: x = scale * level + min, levels 0 … high ---------------------------------------------------------------------- */

/* Ends to try: the smallest and largest value, each moved inwards by (first + k * step) of the range, k < n. */
typedef struct ht_end_range {
    float first, step;
    int   n, n_refine;
} ht_end_range;

typedef struct ht_best_line {
    ht_lanes gain, scale, min;
} ht_best_line;

typedef struct ht_line_sums {
    ht_lanes w, x; /* sum w, sum w x: do not depend on the codes */
    ht_lanes l, ll, xl;
} ht_line_sums;

HT_INLINE void line_sums_add(ht_line_sums* s, ht_lanes x, ht_lanes w, ht_lanes level)
{
    const ht_lanes wl = w * level;
    s->l += wl;
    s->ll += wl * level;
    s->xl += wl * x;
}

/* Weighted regression of x on the levels; with min_le_0 a positive minimum is taken as 0. Groups whose codes are all alike are left out. */
HT_INLINE void best_line_offer(ht_best_line* best, const ht_line_sums* s, bool min_le_0)
{
    const ht_lanes zero = { 0 }, tiny = lanes_set(0x1p-100f);
    const ht_lanes product = s->w * s->ll, det = product - s->l * s->l, inverse = 1.0f / lanes_max(det, tiny);
    ht_lanes       scale = (s->w * s->xl - s->x * s->l) * inverse, min = (s->ll * s->x - s->l * s->xl) * inverse;
    if (min_le_0) {
        scale = lanes_select_less(zero, min, s->xl / lanes_max(s->ll, tiny), scale);
        min   = lanes_min(min, zero);
    }
    ht_lanes gain = scale * s->xl + min * s->x;
    gain          = lanes_select_less(product * 1e-6f, det, gain, lanes_set(-1.0f));
    best->scale   = lanes_select_less(best->gain, gain, scale, best->scale);
    best->min     = lanes_select_less(best->gain, gain, min, best->min);
    best->gain    = lanes_max(best->gain, gain);
}

/* The scale and minimum of each group that, among those tried, leave the least weighted squared error. */
HT_INLINE void fit_affine(const ht_tile* t, int group, float high, bool min_le_0, ht_end_range range, float* restrict scale, float* restrict min)
{
    const ht_levels levels = { 0.0f, high, LEVELS_WHOLE };
    for (int v = 0; v < TILE_GROUPS; v += HT_LANES) {
        const ht_lanes zero = { 0 };
        ht_line_sums   fixed = { zero, zero, zero, zero, zero };
        ht_lanes       low_end = lanes_load(&t->x[0][v]), high_end = low_end;
        for (int i = 0; i < group; i++) {
            const ht_lanes x = lanes_load(&t->x[i][v]), w = lanes_load(&t->w[i][v]);
            fixed.w += w;
            fixed.x += w * x;
            low_end  = lanes_min(low_end, x);
            high_end = lanes_max(high_end, x);
        }
        if (min_le_0) { low_end = lanes_min(low_end, zero); }
        const ht_lanes width = high_end - low_end;
        ht_best_line   best  = { zero, width * (1.0f / high), low_end };
        for (int a = 0; a < range.n; a++) {
            for (int b = 0; b < range.n; b++) {
                const ht_lanes low     = low_end + width * (range.first + (float)a * range.step);
                const ht_lanes top     = high_end - width * (range.first + (float)b * range.step);
                const ht_lanes inverse = high / lanes_max(top - low, lanes_set(0x1p-60f));
                ht_line_sums   sums    = fixed;
                for (int i = 0; i < group; i++) {
                    const ht_lanes x = lanes_load(&t->x[i][v]);
                    line_sums_add(&sums, x, lanes_load(&t->w[i][v]), level_nearest(levels, (x - low) * inverse));
                }
                best_line_offer(&best, &sums, min_le_0);
            }
        }
        for (int k = 0; k < range.n_refine; k++) {
            const ht_lanes inverse = lanes_inverse_or_zero(best.scale), low = best.min;
            ht_line_sums   sums    = fixed;
            for (int i = 0; i < group; i++) {
                const ht_lanes x = lanes_load(&t->x[i][v]);
                line_sums_add(&sums, x, lanes_load(&t->w[i][v]), level_nearest(levels, (x - low) * inverse));
            }
            best_line_offer(&best, &sums, min_le_0);
        }
        lanes_store(scale + v, best.scale);
        lanes_store(min + v, best.min);
    }
}

#endif
