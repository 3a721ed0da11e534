/* runtime/kernels/graph_ops: every variant against plain double arithmetic, and bit for bit against the scalar one. */
#include <math.h>

#include "formats/base/cpu.h"
#include "formats/base/half.h"
#include "runtime/kernels/graph_ops.h"
#include "tests/ht_test.h"

/* The variants that this machine can run; the scalar one is always the last. */
static int usable(const ht_graph_ops* out[8])
{
    int n = 0;
    for (int i = 0; ht_graph_ops_all[i]; i++) {
        if ((ht_graph_ops_all[i]->needs & ~ht_cpu_features()) == 0) { out[n++] = ht_graph_ops_all[i]; }
    }
    assert_true(n > 0);
    return n;
}

static void fill(float* x, int64_t n, float scale, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) { x[i] = scale * ht_test_normal(&seed); }
}

/* |a - b| <= rel * |b| + abs, and false for NaN. */
static bool is_close(double a, double b, double rel, double abs) { return fabs(a - b) <= rel * fabs(b) + abs; }

static void test_rms_norm(void** state)
{
    (void)state;
    enum { N = 80 };
    static const int64_t sizes[] = { 1, 7, 16, 33, N };
    const ht_graph_ops*  ops[8];
    const int            n_ops = usable(ops);
    float                x[N], weight[N], y[N], scalar[N];
    fill(x, N, 3.0f, 1);
    fill(weight, N, 1.0f, 2);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t n   = sizes[s];
        double        sum = 0.0;
        for (int64_t i = 0; i < n; i++) { sum += (double)x[i] * (double)x[i]; }
        ops[n_ops - 1]->rms_norm(x, weight, 1e-5f, n, scalar);
        for (int o = 0; o < n_ops; o++) {
            ops[o]->rms_norm(x, weight, 1e-5f, n, y);
            assert_memory_equal(y, scalar, (size_t)n * sizeof *y);
            for (int64_t i = 0; i < n; i++) {
                assert_true(is_close((double)y[i], (double)x[i] / sqrt(sum / (double)n + 1e-5) * (double)weight[i], 1e-6, 0.0));
            }
        }
    }
}

/* silu covers the exponential on its whole range, sign and overflow included. */
static void test_silu_mul(void** state)
{
    (void)state;
    enum { N = 2003 };
    const ht_graph_ops* ops[8];
    const int           n_ops = usable(ops);
    static float        gate[N], up[N], y[N], scalar[N];
    for (int i = 0; i < N; i++) {
        gate[i] = ((float)i - 1000.0f) * 0.11f;
        up[i]   = 2.0f;
    }
    gate[3] = -1e30f;
    gate[4] = 1e30f;
    gate[5] = NAN;
    memcpy(scalar, gate, sizeof gate);
    ops[n_ops - 1]->silu_mul(scalar, up, N);
    for (int o = 0; o < n_ops; o++) {
        memcpy(y, gate, sizeof gate);
        ops[o]->silu_mul(y, up, N);
        assert_true(isnan(y[5]));
        for (int i = 0; i < N; i++) {
            if (i == 5) { continue; }
            assert_true(y[i] == scalar[i]);
            const double expected = (double)gate[i] / (1.0 + exp(-(double)gate[i])) * 2.0;
            if (!is_close((double)y[i], expected, 4e-7, 2e-36 * fabs((double)gate[i]))) { fail_msg("%s: silu(%g) * 2 = %g", ops[o]->isa, (double)gate[i], (double)y[i]); }
        }
    }
}

static void test_log_sums(void** state)
{
    (void)state;
    enum { N = 5003 };
    const ht_graph_ops* ops[8];
    const int           n_ops = usable(ops);
    static float        base[N], other[N];
    fill(base, N, 4.0f, 3);
    fill(other, N, 0.1f, 4);
    double z_base = 0.0, z_other = 0.0, kl = 0.0;
    float  max_base = base[0];
    for (int i = 0; i < N; i++) {
        other[i] += base[i] + 2.5f; /* a constant offset changes no probability */
        z_base += exp((double)base[i]);
        z_other += exp((double)other[i]);
        max_base = fmaxf(max_base, base[i]);
    }
    for (int i = 0; i < N; i++) {
        kl += exp((double)base[i]) / z_base * (((double)base[i] - log(z_base)) - ((double)other[i] - log(z_other)));
    }
    const float shift = (float)(log(z_base) - log(z_other));
    double      first_log_sum = 0.0, first_p = 0.0, first_pd = 0.0;
    for (int o = 0; o < n_ops; o++) {
        float  max;
        double log_sum, sum_p, sum_pd;
        ops[o]->log_sum_exp(base, N, &max, &log_sum);
        ops[o]->kl_sums(base, other, N, max_base, shift, &sum_p, &sum_pd);
        assert_true(max == max_base);
        assert_true(is_close((double)max + log_sum, log(z_base), 0.0, 1e-6));
        assert_true(is_close(sum_pd / sum_p + ((double)shift - (log(z_base) - log(z_other))), kl, 0.0, 1e-7));
        if (o == 0) { first_log_sum = log_sum, first_p = sum_p, first_pd = sum_pd; }
        assert_true(log_sum == first_log_sum && sum_p == first_p && sum_pd == first_pd);
        base[77] = NAN;
        ops[o]->log_sum_exp(base, N, &max, &log_sum);
        assert_true(!isfinite(log_sum));
        base[77] = other[77] - 2.5f;
        ops[o]->log_sum_exp(base, 1, &max, &log_sum);
        assert_true(max == base[0] && log_sum == 0.0);
        fill(base, N, 4.0f, 3);
    }
}

/* --- attention ------------------------------------------------------------------------------------------------------------- */

enum { N_PAST = 150, N_QUERIES = 21, N_KEYS = N_PAST + N_QUERIES, CAPACITY = 192, GROUP = 3 };

typedef struct shape { int64_t head_dim, head_dim_v, window; bool is_f16; } shape;

typedef struct cache { float *q, *k, *v; void *k_cache, *v_cache; ht_attend attend; } cache;

/* Plain keys and values, and the same in the layout of the cache; what no query may see is NaN. */
static cache cache_create(const shape* s)
{
    const int64_t d = s->head_dim, dv = s->head_dim_v, padded = (dv + 15) / 16 * 16;
    const size_t  elem = s->is_f16 ? 2 : 4;
    cache         c;
    c.q       = calloc((size_t)(N_QUERIES * GROUP * d), sizeof(float));
    c.k       = calloc((size_t)(CAPACITY * d), sizeof(float));
    c.v       = calloc((size_t)(CAPACITY * dv), sizeof(float));
    c.k_cache = calloc((size_t)(CAPACITY * d), elem);
    c.v_cache = calloc((size_t)(CAPACITY * padded), elem);
    fill(c.q, N_QUERIES * GROUP * d, 0.5f, 5);
    fill(c.k, CAPACITY * d, 1.0f, 6);
    fill(c.v, CAPACITY * dv, 1.0f, 7);
    for (int64_t p = 0; p < CAPACITY; p++) {
        for (int64_t i = 0; i < d; i++) {
            float*        x  = &c.k[p * d + i];
            const int64_t at = (p / 16 * d + i) * 16 + p % 16;
            if (p >= N_KEYS) { *x = NAN; }
            if (s->is_f16) { *x = ht_f16_to_f32(((uint16_t*)c.k_cache)[at] = ht_f32_to_f16(*x)); }
            else { ((float*)c.k_cache)[at] = *x; }
        }
        for (int64_t i = 0; i < dv; i++) {
            float* x = &c.v[p * dv + i];
            if (p >= N_KEYS) { *x = NAN; }
            if (s->is_f16) { *x = ht_f16_to_f32(((uint16_t*)c.v_cache)[p * padded + i] = ht_f32_to_f16(*x)); }
            else { ((float*)c.v_cache)[p * padded + i] = *x; }
        }
    }
    c.attend = (ht_attend){ .q = c.q, .k = c.k_cache, .v = c.v_cache, .is_f16 = s->is_f16, .q_stride = GROUP * d, .out_stride = GROUP * dv,
                            .n_past = N_PAST, .window = s->window, .group = GROUP, .head_dim = d, .head_dim_v = dv, .head_dim_v_padded = padded };
    return c;
}

static void cache_free(cache* c)
{
    free(c->q);
    free(c->k);
    free(c->v);
    free(c->k_cache);
    free(c->v_cache);
}

static void check_attention(const cache* c, const shape* s, const float* out)
{
    for (int64_t t = 0; t < N_QUERIES; t++) {
        const int64_t position = N_PAST + t, first = s->window > 0 && position >= s->window ? position - s->window + 1 : 0;
        for (int64_t g = 0; g < GROUP; g++) {
            double score[CAPACITY], max = -1e300, sum = 0.0;
            for (int64_t p = first; p <= position; p++) {
                score[p] = 0.0;
                for (int64_t i = 0; i < s->head_dim; i++) {
                    score[p] += (double)c->q[(t * GROUP + g) * s->head_dim + i] * (double)c->k[p * s->head_dim + i];
                }
                max = fmax(max, score[p]);
            }
            for (int64_t p = first; p <= position; p++) { sum += score[p] = exp(score[p] - max); }
            for (int64_t i = 0; i < s->head_dim_v; i++) {
                double expected = 0.0;
                for (int64_t p = first; p <= position; p++) { expected += score[p] / sum * (double)c->v[p * s->head_dim_v + i]; }
                assert_true(is_close((double)out[(t * GROUP + g) * s->head_dim_v + i], expected, 1e-5, 2e-6));
            }
        }
    }
}

static void test_attend(void** state)
{
    (void)state;
    static const shape  shapes[] = { { 64, 64, 0, true }, { 64, 64, 0, false }, { 20, 12, 0, true }, { 80, 48, 33, false }, { 32, 32, 130, true } };
    const ht_graph_ops* ops[8];
    const int           n_ops = usable(ops);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        cache        c       = cache_create(&shapes[s]);
        const size_t n_out   = (size_t)(N_QUERIES * GROUP * shapes[s].head_dim_v);
        float*       first   = calloc(n_out, sizeof *first);
        float*       out     = calloc(n_out, sizeof *out);
        float*       scratch = calloc(ht_attend_scratch(&c.attend, N_QUERIES), sizeof *scratch);
        for (int o = 0; o < n_ops; o++) {
            c.attend.out = o == 0 ? first : out;
            ops[o]->attend(&c.attend, 0, N_QUERIES, scratch);
            check_attention(&c, &shapes[s], c.attend.out);
            if (o > 0) { assert_memory_equal(out, first, n_out * sizeof *out); }
            c.attend.out = out; /* tiles of any size give the same bits */
            for (int64_t t = 0; t < N_QUERIES; t += 4) { ops[o]->attend(&c.attend, t, t + 4 < N_QUERIES ? t + 4 : N_QUERIES, scratch); }
            assert_memory_equal(out, first, n_out * sizeof *out);
        }
        free(first);
        free(out);
        free(scratch);
        cache_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_silu_mul),
        cmocka_unit_test(test_log_sums),
        cmocka_unit_test(test_attend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
