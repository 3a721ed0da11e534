/* The gradients of a layer against central differences, for the switches of all families; and its forward pass against the runtime's. */
#include "calib/layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/cpu.h"
#include "tests/ht_test.h"
#include "tests/tiny_model.h"

enum { TOKENS = 9, EMBD = 32, FF = 48, HEADS = 4, HEADS_KV = 2, HEAD = 8 };

static uint64_t seed = 7;

static float* filled(int64_t n, float scale, float offset)
{
    float* p = malloc((size_t)n * sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) { p[i] = offset + scale * ht_test_normal(&seed); }
    return p;
}

typedef struct shape {
    bool    neox, bias, qk_norm;
    int64_t window;
} shape;

static ht_hparams hparams_of(shape s)
{
    return (ht_hparams){ .arch = "llama", .n_layers = 1, .n_embd = EMBD, .n_ff = FF, .n_vocab = 64, .n_ctx_train = 64, .n_heads = HEADS, .n_heads_kv = HEADS_KV,
                         .head_dim = HEAD, .head_dim_v = HEAD, .n_rot = HEAD, .norm_rms_eps = 1e-5f, .rope_freq_base = 10000.0f, .rope_neox = s.neox };
}

/* sum of weight * layer(x): what the gradients are of. */
static double objective(const ht_layer_f32* l, ht_layer_space* s, const float* x, const float* weight)
{
    float  y[TOKENS * EMBD];
    double sum = 0.0;
    ht_layer_forward(l, s, x, y);
    for (int i = 0; i < TOKENS * EMBD; i++) { sum += (double)weight[i] * (double)y[i]; }
    return sum;
}

static void check_shape(shape which)
{
    ht_error       err    = HT_ERROR_INIT;
    ht_hparams     h      = hparams_of(which);
    ht_meta*       meta   = ht_meta_create();
    ht_rope        rope   = { 0 };
    ht_layer_space s      = { 0 };
    ht_layer_f32   l;
    float *        x = filled(TOKENS * EMBD, 1.0f, 0.0f), *weight = filled(TOKENS * EMBD, 1.0f, 0.0f), dx[TOKENS * EMBD], y[TOKENS * EMBD];
    float *        inputs[4] = { filled(TOKENS * EMBD, 0, 0), filled(TOKENS * HEADS * HEAD, 0, 0), filled(TOKENS * EMBD, 0, 0), filled(TOKENS * FF, 0, 0) };
    assert_int_equal(ht_rope_init(&rope, meta, h.arch, h.n_rot, which.neox, h.rope_freq_base, NULL, &err), HT_STATUS_OK);
    assert_int_equal(ht_layer_space_init(&s, &h, &rope, TOKENS, &err), HT_STATUS_OK);
    s.h1 = inputs[0], s.a = inputs[1], s.h2 = inputs[2], s.f = inputs[3];
    ht_layer_describe(&l, &h, 0);
    l.ops = ht_graph_ops_get(0), l.rope = &rope, l.window = which.window;
    l.attn_norm = filled(EMBD, 0.1f, 1.0f), l.ffn_norm = filled(EMBD, 0.1f, 1.0f);
    l.q_norm = which.qk_norm ? filled(HEAD, 0.2f, 1.0f) : NULL, l.k_norm = which.qk_norm ? filled(HEAD, 0.2f, 1.0f) : NULL;
    for (int k = 0; k < HT_LINEAR_COUNT; k++) {
        l.linears[k].w    = filled(l.linears[k].n_rows * l.linears[k].n_cols, 0.25f, 0.0f);
        l.linears[k].bias = which.bias ? filled(l.linears[k].n_rows, 0.3f, 0.0f) : NULL;
    }
    ht_layer_forward(&l, &s, x, y);
    ht_layer_backward(&l, &s, x, weight, dx);

    /* Copies: differences below run the layer again. The gradient of a linear's output is that of a bias at one token: summed over tokens here. */
    float sums[HT_LINEAR_COUNT][FF] = { { 0 } };
    for (int k = 0; k < HT_LINEAR_COUNT; k++) {
        const float* g = ht_layer_output_gradient(&s, (ht_linear_id)k, weight);
        for (int64_t i = 0; i < TOKENS * l.linears[k].n_rows; i++) { sums[k][i % l.linears[k].n_rows] += g[i]; }
    }
    const float step = 1e-2f;
    for (int i = 0; i < TOKENS * EMBD; i += 5) {
        const float kept = x[i];
        x[i] = kept + step;
        const double up = objective(&l, &s, x, weight);
        x[i] = kept - step;
        const double down = objective(&l, &s, x, weight), slope = (up - down) / (2.0 * (double)step);
        x[i] = kept;
        if (!(fabs(slope - (double)dx[i]) < 0.01 * (1.0 + fabs(slope)))) { fail_msg("input %d: %g, by differences %g", i, (double)dx[i], slope); }
    }
    for (int k = 0; which.bias && k < HT_LINEAR_COUNT; k++) {
        for (int64_t r = 0; r < l.linears[k].n_rows; r += 3) {
            const float kept = l.linears[k].bias[r];
            l.linears[k].bias[r] = kept + step;
            const double up = objective(&l, &s, x, weight);
            l.linears[k].bias[r] = kept - step;
            const double down = objective(&l, &s, x, weight), slope = (up - down) / (2.0 * (double)step);
            l.linears[k].bias[r] = kept;
            if (!(fabs(slope - (double)sums[k][r]) < 0.02 * (1.0 + fabs(slope)))) { fail_msg("linear %d row %d: %g, by differences %g", k, (int)r, (double)sums[k][r], slope); }
        }
    }
    ht_layer_deinit(&l);
    ht_layer_space_deinit(&s);
    ht_rope_deinit(&rope);
    ht_meta_free(meta);
    for (int k = 0; k < 4; k++) { free(inputs[k]); }
    free(x);
    free(weight);
}

static void test_gradients(void** state)
{
    (void)state;
    check_shape((shape){ .bias = true });
    check_shape((shape){ .neox = true, .bias = true });
    check_shape((shape){ .neox = true, .bias = true, .qk_norm = true });
    check_shape((shape){ .bias = true, .window = 4 });
}

/* --- against the runtime ---------------------------------------------------------------------------------------------------------------- */

typedef struct seen {
    float x[16 * 512];
    bool  found;
} seen;

static const char* const looked_for = "blk.1.ffn_down.weight";

static void keep(void* user, int64_t layer, const char* tensor, const float* x, int64_t n_rows, int64_t n_cols)
{
    seen* s = user;
    (void)layer;
    if (strcmp(tensor, looked_for) != 0) { return; }
    assert_true(n_rows * n_cols <= (int64_t)(sizeof s->x / sizeof *s->x));
    memcpy(s->x, x, (size_t)(n_rows * n_cols) * sizeof *x);
    s->found = true;
}

static void check_family(tiny_family family)
{
    enum { N = 16 };
    ht_error       err = HT_ERROR_INIT;
    temp_folder    folder;
    const ht_ctx   ctx = { .n_threads = 1, .isa = ht_isa_best(ht_cpu_features()) };
    ht_source*     source = NULL;
    ht_model*      model = NULL;
    ht_session*    session = NULL;
    static seen    s;
    int32_t        ids[N];
    folder = temp_folder_create();
    tiny_model* tiny = tiny_create(family);
    tiny_save(tiny, &folder, "in");
    assert_int_equal(ht_source_open(&source, temp_path(&folder, "in"), NULL, &ctx, &err), HT_STATUS_OK);
    assert_int_equal(ht_model_load(&model, source, HT_COMPUTE_EXACT, &ctx, &err), HT_STATUS_OK);
    assert_int_equal(ht_session_create(&session, model, N, HT_KV_TYPE_F32, &ctx, &err), HT_STATUS_OK);
    for (int i = 0; i < N; i++) { ids[i] = (i * 37 + 5) % TINY_VOCAB; }
    ht_session_set_tap(session, keep, &s);
    assert_int_equal(ht_session_eval(session, ids, N, N, NULL, &err), HT_STATUS_OK);
    assert_true(s.found);

    ht_hparams       h = *ht_model_hparams(model);
    ht_rope          rope = { 0 };
    ht_layer_space   space = { 0 };
    const ht_family* f = NULL;
    ht_hparams       read = { 0 };
    assert_int_equal(ht_hparams_read(&read, &f, ht_source_meta(source), &err), HT_STATUS_OK);
    assert_int_equal(ht_rope_init(&rope, ht_source_meta(source), h.arch, h.n_rot, h.rope_neox, h.rope_freq_base, NULL, &err), HT_STATUS_OK);
    assert_int_equal(ht_layer_space_init(&space, &h, &rope, N, &err), HT_STATUS_OK);
    float *x = malloc((size_t)(N * h.n_embd) * sizeof *x), *y = malloc((size_t)(N * h.n_embd) * sizeof *y);
    space.h1 = malloc((size_t)(N * h.n_embd) * 4), space.h2 = malloc((size_t)(N * h.n_embd) * 4);
    space.a = malloc((size_t)(N * h.n_heads * h.head_dim_v) * 4), space.f = malloc((size_t)(N * h.n_ff) * 4);
    for (int i = 0; i < N; i++) {
        assert_int_equal(ht_source_read_rows_f32(source, ht_source_find_tensor(source, "token_embd.weight"), ids[i], 1, x + i * h.n_embd, &err), HT_STATUS_OK);
    }
    for (int64_t k = 0; k < 2; k++) {
        ht_layer_f32 l;
        ht_layer_describe(&l, &h, k);
        l.ops = ht_graph_ops_get(ht_cpu_features()), l.rope = &rope;
        assert_int_equal(ht_layer_read(&l, source, k, 1, &err), HT_STATUS_OK);
        ht_layer_forward(&l, &space, x, y);
        memcpy(x, y, (size_t)(N * h.n_embd) * sizeof *x);
        ht_layer_deinit(&l);
    }
    double worst = 0.0, largest = 0.0;
    for (int64_t i = 0; i < N * h.n_ff; i++) {
        worst   = fmax(worst, fabs((double)space.f[i] - (double)s.x[i]));
        largest = fmax(largest, fabs((double)s.x[i]));
    }
    assert_true(worst <= 1e-4 * largest);
    free(x);
    free(y);
    free(space.h1);
    free(space.h2);
    free(space.a);
    free(space.f);
    ht_layer_space_deinit(&space);
    ht_rope_deinit(&rope);
    ht_session_free(session);
    ht_model_free(model);
    ht_source_close(source);
    tiny_free(tiny);
    temp_folder_remove(&folder);
}

static void test_forward_is_the_runtimes(void** state)
{
    (void)state;
    check_family(TINY_LLAMA);
    check_family(TINY_QWEN2);
    check_family(TINY_QWEN3);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_gradients), cmocka_unit_test(test_forward_is_the_runtimes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
