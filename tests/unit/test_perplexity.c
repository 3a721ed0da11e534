/* runtime/perplexity: against plain sums over logits, and its refusals (bad-inputs K13; the number of the entry is in the test's name). */
#include <math.h>

#include "runtime/perplexity.h"
#include "tests/tiny_model.h"

enum { N_CTX = 32, N_IDS = 5 * N_CTX + 7, PER_CHUNK = N_CTX - 1 - N_CTX / 2 };

static temp_folder folder;
static int32_t     ids[N_IDS];

static int setup(void** state)
{
    (void)state;
    uint64_t seed = 12;
    folder        = temp_folder_create();
    for (int i = 0; i < N_IDS; i++) { ids[i] = (int32_t)(ht_test_random(&seed) % (TINY_VOCAB - 1)); } /* the last id is kept for BOS */
    return 0;
}

static int teardown(void** state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static const ht_ctx* context(void)
{
    static ht_ctx ctx;
    ctx = (ht_ctx){ .n_threads = 2, .isa = ht_isa_best(ht_cpu_features()) };
    return &ctx;
}

static float sine(int64_t row, int64_t col) { return 0.03f * (float)sin((double)(row * 31 + col * 7)); }

/* TINY as it is, or with another matrix. */
static ht_model* load_tiny(bool changed)
{
    static int   n;
    char         name[16];
    ht_source*   source = NULL;
    ht_model*    model  = NULL;
    ht_error     err    = HT_ERROR_INIT;
    tiny_model*  m      = tiny_create(TINY_LLAMA);
    if (changed) { tiny_fill(m, "model.layers.1.mlp.up_proj.weight", sine); }
    snprintf(name, sizeof name, "m%d", n++);
    tiny_save(m, &folder, name);
    tiny_free(m);
    assert_int_equal(ht_source_open(&source, temp_path(&folder, name), NULL, context(), &err), HT_STATUS_OK);
    assert_int_equal(ht_model_load(&model, source, HT_COMPUTE_EXACT, context(), &err), HT_STATUS_OK);
    ht_source_close(source);
    return model;
}

static ht_perplexity_options options_of(int64_t n_chunks, int32_t bos)
{
    return (ht_perplexity_options){ .n_ctx = N_CTX, .n_chunks = n_chunks, .kv_type = HT_KV_TYPE_F32, .bos = bos };
}

/* log p of every token at every position of a chunk, in double. */
static void plain_log_p(const ht_model* model, const int32_t* chunk, double log_p[N_CTX][TINY_VOCAB])
{
    ht_session*  session = NULL;
    ht_error     err     = HT_ERROR_INIT;
    static float logits[N_CTX][TINY_VOCAB];
    assert_int_equal(ht_session_create(&session, model, N_CTX, HT_KV_TYPE_F32, context(), &err), HT_STATUS_OK);
    assert_int_equal(ht_session_eval(session, chunk, N_CTX, 0, &logits[0][0], &err), HT_STATUS_OK);
    for (int t = 0; t < N_CTX; t++) {
        double z = 0.0;
        for (int v = 0; v < TINY_VOCAB; v++) { z += exp((double)logits[t][v]); }
        for (int v = 0; v < TINY_VOCAB; v++) { log_p[t][v] = (double)logits[t][v] - log(z); }
    }
    ht_session_free(session);
}

static void test_equals_plain_sums(void** state)
{
    (void)state;
    enum { N_CHUNKS = 3, BOS = TINY_VOCAB - 1 };
    static double               base_p[N_CTX][TINY_VOCAB], other_p[N_CTX][TINY_VOCAB];
    const ht_model*             models[] = { load_tiny(false), load_tiny(true) };
    const char* const           names[]  = { "base", "other" };
    const ht_perplexity_options options  = options_of(N_CHUNKS, BOS);
    ht_score                    scores[2];
    ht_error                    err = HT_ERROR_INIT;
    assert_int_equal(ht_perplexity_run(models, names, 2, true, ids, N_IDS, &options, context(), scores, &err), HT_STATUS_OK);

    const int n   = N_CHUNKS * PER_CHUNK;
    double    nll = 0.0, nll_sq = 0.0, kl_sum = 0.0, kl_max = 0.0, dp_sq = 0.0;
    int       n_same = 0;
    for (int c = 0; c < N_CHUNKS; c++) {
        int32_t chunk[N_CTX];
        memcpy(chunk, ids + c * N_CTX, sizeof chunk);
        chunk[0] = BOS;
        plain_log_p(models[0], chunk, base_p);
        plain_log_p(models[1], chunk, other_p);
        for (int t = N_CTX / 2; t < N_CTX - 1; t++) {
            double kl = 0.0;
            int    top_base = 0, top_other = 0;
            for (int v = 0; v < TINY_VOCAB; v++) {
                kl += exp(base_p[t][v]) * (base_p[t][v] - other_p[t][v]);
                if (base_p[t][v] > base_p[t][top_base]) { top_base = v; }
                if (other_p[t][v] > other_p[t][top_other]) { top_other = v; }
            }
            const double dp = exp(other_p[t][chunk[t + 1]]) - exp(base_p[t][chunk[t + 1]]);
            nll -= other_p[t][chunk[t + 1]];
            nll_sq += other_p[t][chunk[t + 1]] * other_p[t][chunk[t + 1]];
            kl_sum += kl;
            kl_max = fmax(kl_max, kl);
            dp_sq += dp * dp;
            n_same += top_base == top_other;
        }
    }
    const ht_score* s = &scores[1];
    assert_false(scores[0].has_kl);
    assert_true(s->has_kl);
    assert_int_equal(s->n_scored, n);
    assert_true(fabs(s->perplexity - exp(nll / n)) < 1e-4 * s->perplexity);
    const double variance = (nll_sq / n - nll / n * nll / n) / (n - 1);
    assert_true(fabs(s->perplexity_stderr - s->perplexity * sqrt(variance)) < 1e-3 * s->perplexity_stderr);
    assert_true(kl_sum / n > 1e-3); /* the two models do differ */
    assert_true(fabs(s->kl_mean - kl_sum / n) < 1e-6);
    assert_true(fabs(s->kl_max - kl_max) < 1e-6);
    assert_true(s->kl_median <= s->kl_p99 && s->kl_p99 <= s->kl_p999 && s->kl_p999 <= s->kl_max);
    assert_true(fabs(s->rms_dp - sqrt(dp_sq / n)) < 1e-6);
    assert_true(fabs(s->same_top1 - (double)n_same / n) < 1e-12);
    for (int i = 0; i < 2; i++) { ht_model_free((ht_model*)(uintptr_t)models[i]); }
}

static void test_a_model_against_itself(void** state)
{
    (void)state;
    ht_model*                   model    = load_tiny(false);
    const ht_model*             models[] = { model, model };
    const char* const           names[]  = { "a", "b" };
    const ht_perplexity_options options  = options_of(0, -1);
    ht_score                    scores[2];
    ht_error                    err = HT_ERROR_INIT;
    assert_int_equal(ht_perplexity_run(models, names, 2, true, ids, N_IDS, &options, context(), scores, &err), HT_STATUS_OK);
    assert_int_equal(scores[1].n_scored, 5 * PER_CHUNK);
    assert_true(scores[0].perplexity == scores[1].perplexity);
    assert_true(scores[1].kl_max == 0.0 && scores[1].rms_dp == 0.0 && scores[1].same_top1 == 1.0);
    ht_model_free(model);
}

static void test_70_short_texts(void** state)
{
    (void)state;
    ht_model*             model    = load_tiny(false);
    const ht_model*       models[] = { model };
    const char* const     names[]  = { "a" };
    ht_perplexity_options options  = options_of(0, -1);
    ht_score              score;
    ht_error              err = HT_ERROR_INIT;
    const int64_t         short_texts[] = { 0, 1, 20, N_CTX - 1 };
    for (int i = 0; i < 4; i++) {
        ht_error_clear(&err);
        assert_int_equal(ht_perplexity_run(models, names, 1, false, ids, short_texts[i], &options, context(), &score, &err), HT_STATUS_ARG);
        assert_non_null(strstr(err.message, "one chunk needs 32"));
    }
    assert_int_equal(ht_perplexity_run(models, names, 1, false, ids, N_CTX, &options, context(), &score, &err), HT_STATUS_OK);
    assert_true(isfinite(score.perplexity));
    assert_true(isnan(score.perplexity_stderr)); /* one chunk: no error bar */
    int32_t same[2 * N_CTX];
    for (int i = 0; i < 2 * N_CTX; i++) { same[i] = 65; }
    assert_int_equal(ht_perplexity_run(models, names, 1, false, same, 2 * N_CTX, &options, context(), &score, &err), HT_STATUS_OK);
    assert_true(isfinite(score.perplexity) && isfinite(score.perplexity_stderr));
    options.n_chunks = 9;
    ht_error_clear(&err);
    assert_int_equal(ht_perplexity_run(models, names, 1, false, ids, N_IDS, &options, context(), &score, &err), HT_STATUS_ARG);
    assert_non_null(strstr(err.message, "9 chunks"));
    ht_model_free(model);
}

/* The embedding of token 77 is NaN, and it comes first in chunk 3: chunks 1 and 2 are fine, then the run stops with its place. */
static void test_71_first_nonfinite_value_stops(void** state)
{
    (void)state;
    ht_source*                  source = NULL;
    ht_model*                   model  = NULL;
    ht_error                    err    = HT_ERROR_INIT;
    ht_score                    score;
    const char* const           names[] = { "broken.gguf" };
    const ht_perplexity_options options = options_of(0, -1);
    tiny_model*                 m       = tiny_create(TINY_LLAMA);
    int32_t                     text[N_IDS];
    const ht_source_options     allow   = { .allow_nonfinite = true };
    tiny_set_bf16(tiny_find(m, "model.embed_tokens.weight"), 77 * 256 + 9, NAN);
    tiny_save(m, &folder, "broken");
    tiny_free(m);
    assert_int_equal(ht_source_open(&source, temp_path(&folder, "broken"), &allow, context(), &err), HT_STATUS_OK);
    assert_int_equal(ht_model_load(&model, source, HT_COMPUTE_EXACT, context(), &err), HT_STATUS_OK);
    ht_source_close(source);
    const ht_model* models[] = { model };
    for (int i = 0; i < N_IDS; i++) { text[i] = ids[i] == 77 ? 78 : ids[i]; }
    assert_int_equal(ht_perplexity_run(models, names, 1, false, text, N_IDS, &options, context(), &score, &err), HT_STATUS_OK);
    text[2 * N_CTX + 5] = 77;
    assert_int_equal(ht_perplexity_run(models, names, 1, false, text, N_IDS, &options, context(), &score, &err), HT_STATUS_NUMERIC);
    assert_string_equal(err.file, "broken.gguf");
    assert_non_null(strstr(err.message, "chunk 3 of 5: position 5 (token id 77)"));
    ht_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_plain_sums),
        cmocka_unit_test(test_a_model_against_itself),
        cmocka_unit_test(test_70_short_texts),
        cmocka_unit_test(test_71_first_nonfinite_value_stops),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
