/*
 * The body of the graph operations, included once per instruction set by graph_ops_<isa>.c, which defines
 *   GRAPH_OPS_NAME    the ht_graph_ops object to define       GRAPH_OPS_ISA    "avx2"
 *   GRAPH_OPS_BYTES   bytes of a native vector (16, 32, 64)   GRAPH_OPS_NEEDS  ht_cpu_feature mask
 *
 * Written with GCC vector types of the native width. Sums run in 16 lanes whatever that width is (lane l adds elements l, l + 16, …).
 */
#include <math.h>
#include <string.h>

#include "formats/base/cpu.h"
#include "formats/base/half.h"
#include "runtime/kernels/graph_ops.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

#define LANES (GRAPH_OPS_BYTES / 4)
#define FOLD (16 / LANES) /* native vectors per 16 lanes */

typedef float   vec __attribute__((vector_size(GRAPH_OPS_BYTES)));
typedef int32_t ivec __attribute__((vector_size(GRAPH_OPS_BYTES)));
typedef uint32_t uvec __attribute__((vector_size(GRAPH_OPS_BYTES)));
typedef float   vec_unaligned __attribute__((vector_size(GRAPH_OPS_BYTES), aligned(4), may_alias));

static inline vec  load(const float* p) { return *(const vec_unaligned*)p; }
static inline void store(float* p, vec v) { *(vec_unaligned*)p = v; }
static inline vec  splat(float x) { return x - (vec){ 0 }; }
static inline vec  choose(ivec mask, vec a, vec b) { return (vec)(((ivec)a & mask) | ((ivec)b & ~mask)); }
static inline vec  larger(vec a, vec b) { return choose(a > b, a, b); }

/* 16 lanes in memory -> one number, by halving: (l, l + 8), (l, l + 4), … */
static inline float fold_sum(const vec acc[FOLD])
{
    float lane[16];
    for (int f = 0; f < FOLD; f++) { store(lane + f * LANES, acc[f]); }
    for (int half = 8; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) { lane[l] += lane[l + half]; }
    }
    return lane[0];
}

static inline float fold_max(vec v)
{
    float lane[LANES], max;
    store(lane, v);
    max = lane[0];
    for (int l = 1; l < LANES; l++) { max = lane[l] > max ? lane[l] : max; }
    return max;
}

/*
 * e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2, and e^r by its Taylor polynomial of degree 7 (remainder below 0.35^8 / 8! = 6e-9).
 * ln 2 is split in a part of 16 bits, so that n * ln2_high is exact, and the rest. Below -87 the result is 0, above 88 that of 88; NaN stays NaN.
 */
static inline vec exp_vec(vec x)
{
    const float round_bias = 0x1.8p23f; /* adding it leaves the nearest integer in the low bits of the sum */
    const float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
    const ivec  is_zero  = x < splat(-87.0f);
    x                    = choose(x > splat(88.0f), splat(88.0f), x);
    const vec biased     = x * splat(0x1.715476p+0f) + splat(round_bias);
    const vec n          = biased - splat(round_bias);
    const vec r          = (x - n * splat(ln2_high)) - n * splat(ln2_low);
    vec       p          = splat(1.0f / 5040.0f);
    p = p * r + splat(1.0f / 720.0f);
    p = p * r + splat(1.0f / 120.0f);
    p = p * r + splat(1.0f / 24.0f);
    p = p * r + splat(1.0f / 6.0f);
    p = p * r + splat(0.5f);
    p = p * r + splat(1.0f);
    p = p * r + splat(1.0f);
    const uvec scale = ((uvec)biased << 23) + 0x3F800000u; /* the bits of 2^n: the bias has no bit below 2^9 that is not n */
    return (vec)((ivec)(p * (vec)scale) & ~is_zero);
}

/* LANES halves -> floats, exact. */
static inline vec load_f16(const uint16_t* p)
{
#if GRAPH_OPS_BYTES == 64 && defined(__AVX512F__)
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u*)p));
#elif GRAPH_OPS_BYTES == 32 && defined(__F16C__)
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u*)p));
#else
    float x[LANES];
    for (int l = 0; l < LANES; l++) { x[l] = ht_f16_to_f32(p[l]); }
    return load(x);
#endif
}

static void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* y)
{
    vec     acc[FOLD] = { { 0 } };
    int64_t i         = 0;
    for (; i + 16 <= n; i += 16) {
        for (int f = 0; f < FOLD; f++) {
            const vec v = load(x + i + f * LANES);
            acc[f] += v * v;
        }
    }
    float sum = fold_sum(acc);
    for (; i < n; i++) { sum += x[i] * x[i]; }
    const float scale = 1.0f / sqrtf(sum / (float)n + eps);
    for (i = 0; i < n; i++) { y[i] = x[i] * scale * weight[i]; }
}

static void silu_mul(float* gate, const float* up, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec g = load(gate + i);
        store(gate + i, g / (splat(1.0f) + exp_vec(-g)) * load(up + i));
    }
    if (i < n) { /* the same arithmetic on a padded copy */
        float g[LANES] = { 0 };
        memcpy(g, gate + i, (size_t)(n - i) * sizeof *g);
        const vec v = load(g);
        store(g, v / (splat(1.0f) + exp_vec(-v)));
        for (int64_t l = 0; i + l < n; l++) { gate[i + l] = g[l] * up[i + l]; }
    }
}

/* --- attention --------------------------------------------------------------------------------------------------------- */

/* Scores of masked keys: far below any real score, yet finite, so that no Inf - Inf arises. */
static const float MASKED = -1e30f;

/* score[j] = q . key j for the 64 keys of a step. */
static inline void score_keys(const float* q, const float* k, int64_t head_dim, float* score)
{
    for (int64_t b = 0; b < HT_ATTEND_KEYS / 16; b += 2) { /* 32 keys at a time keep the sums in registers on every ISA */
        const float* k0            = k + b * head_dim * 16;
        const float* k1            = k0 + head_dim * 16;
        vec          acc[2 * FOLD] = { { 0 } };
        for (int64_t d = 0; d < head_dim; d++) {
            const vec x = splat(q[d]);
            for (int f = 0; f < FOLD; f++) {
                acc[f] += x * load(k0 + d * 16 + f * LANES);
                acc[FOLD + f] += x * load(k1 + d * 16 + f * LANES);
            }
        }
        for (int f = 0; f < 2 * FOLD; f++) { store(score + b * 16 + f * LANES, acc[f]); }
    }
}

/* acc[d] = acc[d] * keep + sum over j in [from, to) of p[j] * v[j][d], 32 columns at a time, then 16. */
static inline void add_values(const float* p, const float* v, int64_t n_cols, int64_t from, int64_t to, float keep, float* acc)
{
    int64_t d = 0;
    for (; d + 32 <= n_cols; d += 32) {
        vec sum[2 * FOLD];
        for (int f = 0; f < 2 * FOLD; f++) { sum[f] = load(acc + d + f * LANES) * splat(keep); }
        for (int64_t j = from; j < to; j++) {
            for (int f = 0; f < 2 * FOLD; f++) { sum[f] += splat(p[j]) * load(v + j * n_cols + d + f * LANES); }
        }
        for (int f = 0; f < 2 * FOLD; f++) { store(acc + d + f * LANES, sum[f]); }
    }
    for (; d < n_cols; d += 16) {
        vec sum[FOLD];
        for (int f = 0; f < FOLD; f++) { sum[f] = load(acc + d + f * LANES) * splat(keep); }
        for (int64_t j = from; j < to; j++) {
            for (int f = 0; f < FOLD; f++) { sum[f] += splat(p[j]) * load(v + j * n_cols + d + f * LANES); }
        }
        for (int f = 0; f < FOLD; f++) { store(acc + d + f * LANES, sum[f]); }
    }
}

/* Turns the scores of keys [from, to) into exp(score - *max), the others into 0; updates max and sum, returns the factor for older values. */
static inline float soften(float* score, int64_t from, int64_t to, float* max, float* sum)
{
    for (int64_t j = 0; j < from; j++) { score[j] = MASKED; }
    for (int64_t j = to; j < HT_ATTEND_KEYS; j++) { score[j] = MASKED; }
    vec top = load(score);
    for (int64_t j = LANES; j < HT_ATTEND_KEYS; j += LANES) { top = larger(load(score + j), top); }
    const float step_max = fold_max(top);
    const float new_max  = step_max > *max ? step_max : *max;
    vec         total[FOLD] = { { 0 } };
    for (int64_t j = 0; j < HT_ATTEND_KEYS; j += 16) {
        for (int f = 0; f < FOLD; f++) {
            const vec p = exp_vec(load(score + j + f * LANES) - splat(new_max));
            store(score + j + f * LANES, p);
            total[f] += p;
        }
    }
    float keep[LANES];
    store(keep, exp_vec(splat(*max - new_max)));
    *sum = *sum * keep[0] + fold_sum(total);
    *max = new_max;
    return keep[0];
}

static void widen(const uint16_t* from, int64_t n, float* to)
{
    for (int64_t i = 0; i < n; i += LANES) { store(to + i, load_f16(from + i)); }
}

/*
 * One pass over the visible keys in steps of 64. A step's keys and values are widened to f32 once and meet every (query, head) row of the
 * tile; a row carries its running maximum, the sum of exp(score - maximum), and the sum of values weighted so (Milakov & Gimelshein 2018,
 * arXiv:1805.02867), so no row of scores is ever longer than 64.
 */
static void attend(const ht_attend* a, int64_t from, int64_t to, float* scratch)
{
    const int64_t n_rows = (to - from) * a->group;
    const int64_t k_step = HT_ATTEND_KEYS * a->head_dim, v_step = HT_ATTEND_KEYS * a->head_dim_v_padded;
    float*        score  = scratch;
    float*        k_wide = score + HT_ATTEND_KEYS;
    float*        v_wide = k_wide + k_step;
    float*        max    = v_wide + v_step;
    float*        sum    = max + n_rows;
    float*        acc    = sum + n_rows;
    for (int64_t r = 0; r < n_rows; r++) {
        max[r] = MASKED;
        sum[r] = 0.0f;
    }
    memset(acc, 0, (size_t)(n_rows * a->head_dim_v_padded) * sizeof *acc);

    const int64_t oldest = a->window > 0 && a->n_past + from >= a->window ? a->n_past + from - a->window + 1 : 0;
    for (int64_t step = oldest / HT_ATTEND_KEYS; step * HT_ATTEND_KEYS < a->n_past + to; step++) {
        const int64_t key0 = step * HT_ATTEND_KEYS;
        const float*  k    = (const float*)a->k + (a->is_f16 ? 0 : step * k_step);
        const float*  v    = (const float*)a->v + (a->is_f16 ? 0 : step * v_step);
        if (a->is_f16) {
            widen((const uint16_t*)a->k + step * k_step, k_step, k_wide);
            widen((const uint16_t*)a->v + step * v_step, v_step, v_wide);
            k = k_wide;
            v = v_wide;
        }
        for (int64_t r = 0; r < n_rows; r++) {
            const int64_t t = from + r / a->group, g = r % a->group, position = a->n_past + t;
            const int64_t first   = a->window > 0 && position >= a->window ? position - a->window + 1 : 0;
            const int64_t visible = first > key0 ? first - key0 : 0;
            const int64_t end     = position + 1 - key0 < HT_ATTEND_KEYS ? position + 1 - key0 : HT_ATTEND_KEYS;
            if (visible >= end) { continue; }
            score_keys(a->q + t * a->q_stride + g * a->head_dim, k, a->head_dim, score);
            const float keep = soften(score, visible, end, &max[r], &sum[r]);
            add_values(score, v, a->head_dim_v_padded, visible, end, keep, acc + r * a->head_dim_v_padded);
        }
    }
    for (int64_t r = 0; r < n_rows; r++) {
        float*       out   = a->out + (from + r / a->group) * a->out_stride + r % a->group * a->head_dim_v;
        const float* value = acc + r * a->head_dim_v_padded;
        for (int64_t d = 0; d < a->head_dim_v; d++) { out[d] = value[d] / sum[r]; }
    }
}

/* --- log-probabilities --------------------------------------------------------------------------------------------------- */

/* f32 lanes are emptied into the f64 total after this many elements: at most 64 additions per lane. */
enum { SUM_BLOCK = 1024 };

static void log_sum_exp(const float* x, int64_t n, float* max, double* log_sum)
{
    vec     top = splat(-INFINITY);
    int64_t i   = 0;
    for (; i + LANES <= n; i += LANES) { top = larger(load(x + i), top); }
    float m = fold_max(top);
    for (; i < n; i++) { m = x[i] > m ? x[i] : m; }

    double total = 0.0;
    for (int64_t block = 0; block < n; block += SUM_BLOCK) {
        const int64_t end       = n - block < SUM_BLOCK ? n : block + SUM_BLOCK;
        vec           acc[FOLD] = { { 0 } };
        for (i = block; i + 16 <= end; i += 16) {
            for (int f = 0; f < FOLD; f++) { acc[f] += exp_vec(load(x + i + f * LANES) - splat(m)); }
        }
        total += (double)fold_sum(acc);
        for (; i < end; i++) { total += exp((double)(x[i] - m)); }
    }
    *max     = m;
    *log_sum = log(total);
}

static void kl_sums(const float* base, const float* other, int64_t n, float max_base, float shift, double* sum_p, double* sum_pd)
{
    double total_p = 0.0, total_pd = 0.0;
    for (int64_t block = 0; block < n; block += SUM_BLOCK) {
        const int64_t end     = n - block < SUM_BLOCK ? n : block + SUM_BLOCK;
        vec           p[FOLD] = { { 0 } }, pd[FOLD] = { { 0 } };
        int64_t       i       = block;
        for (; i + 16 <= end; i += 16) {
            for (int f = 0; f < FOLD; f++) {
                const vec b = load(base + i + f * LANES), e = exp_vec(b - splat(max_base));
                p[f] += e;
                pd[f] += e * ((b - load(other + i + f * LANES)) - splat(shift));
            }
        }
        total_p += (double)fold_sum(p);
        total_pd += (double)fold_sum(pd);
        for (; i < end; i++) {
            const double e = exp((double)(base[i] - max_base));
            total_p += e;
            total_pd += e * ((double)base[i] - (double)other[i] - (double)shift);
        }
    }
    *sum_p  = total_p;
    *sum_pd = total_pd;
}

extern const ht_graph_ops GRAPH_OPS_NAME;
const ht_graph_ops GRAPH_OPS_NAME = { GRAPH_OPS_ISA, GRAPH_OPS_NEEDS, rms_norm, silu_mul, attend, log_sum_exp, kl_sums };
