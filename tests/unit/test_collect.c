/* Statistics against the runtime's tap, for all families; and activations that overflow (bad inputs K8 45, 47). */
#include "calib/collect.h"

#include <math.h>

#include "formats/base/cpu.h"
#include "runtime/model.h"
#include "tests/ht_test.h"
#include "tests/tiny_model.h"

enum { CTX = 32, CHUNKS = 6 };

static void make_texts(ht_calib_texts* texts, const ht_ctx* ctx)
{
    int32_t  ids[CTX * CHUNKS];
    ht_error err = HT_ERROR_INIT;
    for (int i = 0; i < CTX * CHUNKS; i++) { ids[i] = (i * 41 + i / 7) % 256; }
    assert_int_equal(ht_calib_texts_from_ids(texts, "made up", ids, CTX * CHUNKS, &(ht_calib_options){ .n_ctx = CTX, .held_every = 3 }, ctx, &err), HT_STATUS_OK);
}

/* Sums of squares of one linear's inputs, from the runtime. */
typedef struct tapped {
    const char* name;
    double      sum_sq[1024];
    int64_t     n_tokens;
} tapped;

static void add_squares(void* user, int64_t layer, const char* tensor, const float* x, int64_t n_rows, int64_t n_cols)
{
    tapped* t = user;
    (void)layer;
    if (strcmp(tensor, t->name) != 0) { return; }
    for (int64_t i = 0; i < n_rows * n_cols; i++) { t->sum_sq[i % n_cols] += (double)x[i] * (double)x[i]; }
    t->n_tokens += n_rows;
}

static void check_family(tiny_family family, ht_collect_kind kind)
{
    const ht_hessian_kind fitted = kind == HT_COLLECT_PLAIN ? HT_HESSIAN_PLAIN : HT_HESSIAN_GUIDED;
    ht_error          err = HT_ERROR_INIT;
    const ht_ctx      ctx = { .n_threads = 2, .isa = ht_isa_best(ht_cpu_features()), .seed = 1 };
    temp_folder       folder = temp_folder_create();
    tiny_model*       tiny = tiny_create(family);
    ht_source*        source = NULL;
    ht_model*         model = NULL;
    ht_session*       session = NULL;
    ht_statistics*    s = NULL;
    ht_calib_texts    texts = { 0 };
    ht_collect_report report = { 0 };
    char              path[600];
    tiny_save(tiny, &folder, "in");
    snprintf(path, sizeof path, "%s", temp_path(&folder, "stats.gguf"));
    assert_int_equal(ht_source_open(&source, temp_path(&folder, "in"), NULL, &ctx, &err), HT_STATUS_OK);
    make_texts(&texts, &ctx);
    if (ht_collect_run(source, &texts, path, &(ht_collect_options){ .kind = kind }, &ctx, &report, &err) != HT_STATUS_OK) { fail_msg("%s", err.message); }
    assert_int_equal(report.n_tokens, 4 * CTX);
    assert_int_equal(report.n_tokens_held_out, 2 * CTX);

    assert_int_equal(ht_statistics_open(&s, path, false, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_check(s, source, false, false, &ctx, &err), HT_STATUS_OK);
    assert_int_equal(ht_model_load(&model, source, HT_COMPUTE_EXACT, &ctx, &err), HT_STATUS_OK);
    assert_int_equal(ht_session_create(&session, model, CTX, HT_KV_TYPE_F32, &ctx, &err), HT_STATUS_OK);
    static const char* const names[] = { "blk.1.attn_q.weight", "blk.1.attn_v.weight", "blk.0.attn_output.weight", "blk.1.ffn_up.weight", "blk.1.ffn_down.weight" };
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        tapped                     t = { .name = names[k] };
        const ht_statistics_entry* e = ht_statistics_find(s, names[k]);
        assert_non_null(e);
        ht_session_set_tap(session, add_squares, &t);
        for (int64_t c = 0; c < texts.n_chunks; c++) {
            if (texts.is_held_out[c]) { continue; }
            ht_session_reset(session);
            assert_int_equal(ht_session_eval(session, texts.ids + c * CTX, CTX, CTX, NULL, &err), HT_STATUS_OK);
        }
        assert_true(e->counts[0] == (double)t.n_tokens);
        for (int64_t i = 0; i < e->n_cols; i++) { assert_true(fabs(e->sum_sq[i] - t.sum_sq[i]) <= 1e-4 * (t.sum_sq[i] + 1e-6)); }
        assert_true(e->has_hessian[fitted] && e->has_hessian[HT_HESSIAN_HELD_OUT]);
        float* h = malloc((size_t)(e->n_cols * e->n_cols) * sizeof *h);
        assert_int_equal(ht_statistics_read_hessian(s, e, fitted, h, &err), HT_STATUS_OK);
        /* The plain Hessian's diagonal is the importance, the probed one's a positive multiple of it. */
        const double factor = (double)h[0] / (e->sum_sq[0] / e->counts[0]);
        assert_true(factor > 0.0 && (kind != HT_COLLECT_PLAIN || fabs(factor - 1.0) <= 1e-5));
        for (int64_t i = 0; i < e->n_cols && kind != HT_COLLECT_GUIDED; i++) {
            const double mean = e->sum_sq[i] / e->counts[0];
            assert_true(fabs((double)h[i * e->n_cols + i] - factor * mean) <= 2e-5 * factor * mean);
        }
        double sum = 0.0; /* row weights have a mean of one, and are all alike without gradients */
        for (int64_t r = 0; r < e->n_rows && kind != HT_COLLECT_PLAIN; r++) {
            sum += (double)e->row_weight[0][r] / (double)e->n_rows;
            assert_true(kind == HT_COLLECT_GUIDED || e->row_weight[0][r] == 1.0f);
        }
        assert_true(kind == HT_COLLECT_PLAIN || fabs(sum - 1.0) < 1e-4);
        free(h);
    }
    ht_session_free(session);
    ht_model_free(model);
    ht_statistics_close(s);
    ht_calib_texts_deinit(&texts);
    ht_source_close(source);
    tiny_free(tiny);
    temp_folder_remove(&folder);
}

static void test_inputs_are_the_runtimes(void** state)
{
    (void)state;
    check_family(TINY_LLAMA, HT_COLLECT_GUIDED);
    check_family(TINY_LLAMA, HT_COLLECT_PLAIN);
    check_family(TINY_LLAMA, HT_COLLECT_PROBED);
    check_family(TINY_QWEN2, HT_COLLECT_GUIDED);
    check_family(TINY_QWEN2, HT_COLLECT_PROBED);
    check_family(TINY_QWEN3, HT_COLLECT_GUIDED);
}

static float beyond_f16(int64_t row, int64_t col) { return 3000.0f * (float)((row * 31 + col * 17) % 13 - 6); }
static float beyond_f32(int64_t row, int64_t col) { return 1e37f * (float)((row * 31 + col * 17) % 13 - 6); }

/* K8 47: hidden states beyond the half-precision range are finite here. K8 45: what does overflow stops the run at once, with its place. */
static void test_large_activations(void** state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        ht_error          err = HT_ERROR_INIT;
        const ht_ctx      ctx = { .n_threads = 1, .isa = ht_isa_best(ht_cpu_features()) };
        temp_folder       folder = temp_folder_create();
        tiny_model*       tiny = tiny_create(TINY_LLAMA);
        ht_source*        source = NULL;
        ht_calib_texts    texts = { 0 };
        ht_collect_report report = { 0 };
        tiny_fill(tiny, "model.layers.0.mlp.down_proj.weight", k == 0 ? beyond_f16 : beyond_f32);
        tiny_fill(tiny, "model.layers.0.mlp.up_proj.weight", k == 0 ? beyond_f16 : beyond_f32);
        tiny_save(tiny, &folder, "in");
        assert_int_equal(ht_source_open(&source, temp_path(&folder, "in"), NULL, &ctx, &err), HT_STATUS_OK);
        make_texts(&texts, &ctx);
        const ht_status st = ht_collect_run(source, &texts, temp_path(&folder, "stats.gguf"), &(ht_collect_options){ .kind = HT_COLLECT_GUIDED }, &ctx, &report, &err);
        if (k == 0 && st != HT_STATUS_OK) { fail_msg("%s", err.message); }
        if (k == 1) {
            assert_int_equal(st, HT_STATUS_NUMERIC);
            assert_contains(err.message, "not finite at layer 0, chunk 0, position");
            assert_false(ht_file_exists(temp_path(&folder, "stats.gguf")));
        }
        ht_calib_texts_deinit(&texts);
        ht_source_close(source);
        tiny_free(tiny);
        temp_folder_remove(&folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_inputs_are_the_runtimes), cmocka_unit_test(test_large_activations) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
