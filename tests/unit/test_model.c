/* runtime/model, graph, kv_cache, rope: TINY checkpoints of all families run in every way that must not matter, and refused when they cannot run. */
#include <math.h>

#include "runtime/model.h"
#include "runtime/rope.h"
#include "tests/gguf_bytes.h"
#include "tests/tiny_model.h"

enum { N_IDS = 150, N_CTX = 160, N_LOGITS = N_IDS * TINY_VOCAB };

static temp_folder folder;
static int32_t     ids[N_IDS];

static int setup(void** state)
{
    (void)state;
    uint64_t seed = 11;
    folder        = temp_folder_create();
    for (int i = 0; i < N_IDS; i++) { ids[i] = (int32_t)(ht_test_random(&seed) % TINY_VOCAB); }
    return 0;
}

static int teardown(void** state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static ht_ctx context(int n_threads, ht_isa isa) { return (ht_ctx){ .n_threads = n_threads, .isa = isa }; }

static ht_isa best_isa(void) { return ht_isa_best(ht_cpu_features()); }

/* Save under a fresh name and load. The TINY model is freed. */
static ht_model* load_tiny(tiny_model* m, const ht_ctx* ctx)
{
    static int n;
    char       name[16], line[1024];
    ht_source* source = NULL;
    ht_model*  model  = NULL;
    ht_error   err    = HT_ERROR_INIT;
    snprintf(name, sizeof name, "m%d", n++);
    tiny_save(m, &folder, name);
    tiny_free(m);
    if (ht_source_open(&source, temp_path(&folder, name), NULL, ctx, &err) != HT_STATUS_OK ||
        ht_model_load(&model, source, HT_COMPUTE_EXACT, ctx, &err) != HT_STATUS_OK) {
        fail_msg("%s", ht_error_format(&err, line, sizeof line));
    }
    ht_source_close(source);
    return model;
}

/* The logits of all ids, fed `step` at a time. Freed by the caller. */
static float* logits_of(const ht_model* model, const ht_ctx* ctx, ht_kv_type kv_type, int64_t step)
{
    ht_session* session = NULL;
    ht_error    err     = HT_ERROR_INIT;
    float*      logits  = calloc(N_LOGITS, sizeof *logits);
    assert_int_equal(ht_session_create(&session, model, N_CTX, kv_type, ctx, &err), HT_STATUS_OK);
    for (int64_t i = 0; i < N_IDS; i += step) {
        const int64_t n = i + step < N_IDS ? step : N_IDS - i;
        assert_int_equal(ht_session_eval(session, ids + i, n, 0, logits + i * TINY_VOCAB, &err), HT_STATUS_OK);
    }
    assert_int_equal(ht_session_n_past(session), N_IDS);
    ht_session_free(session);
    return logits;
}

static double largest_difference(const float* a, const float* b)
{
    double largest = 0.0;
    for (int i = 0; i < N_LOGITS; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= largest)) { largest = d; } /* NaN too */
    }
    return largest;
}

static void test_threads_and_batches_change_no_bit(void** state)
{
    (void)state;
    for (int family = TINY_LLAMA; family <= TINY_QWEN3; family++) {
        const ht_ctx one = context(1, best_isa()), three = context(3, best_isa());
        ht_model*    model  = load_tiny(tiny_create((tiny_family)family), &one);
        float*       whole  = logits_of(model, &one, HT_KV_TYPE_F16, N_IDS);
        float*       others[] = { logits_of(model, &three, HT_KV_TYPE_F16, N_IDS), logits_of(model, &one, HT_KV_TYPE_F16, 1),
                                  logits_of(model, &three, HT_KV_TYPE_F16, 64 + 7) };
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
            assert_memory_equal(others[i], whole, N_LOGITS * sizeof *whole);
            free(others[i]);
        }
        free(whole);
        ht_model_free(model);
    }
}

static void test_cache_type_and_isa_change_little(void** state)
{
    (void)state;
    const ht_ctx best = context(2, best_isa()), scalar = context(2, HT_ISA_SCALAR);
    ht_model*    model   = load_tiny(tiny_create(TINY_QWEN3), &best);
    ht_model*    plain   = load_tiny(tiny_create(TINY_QWEN3), &scalar);
    float*       f32     = logits_of(model, &best, HT_KV_TYPE_F32, N_IDS);
    float*       f16     = logits_of(model, &best, HT_KV_TYPE_F16, N_IDS);
    float*       simple  = logits_of(plain, &scalar, HT_KV_TYPE_F32, N_IDS);
    const double by_kv = largest_difference(f32, f16), by_isa = largest_difference(f32, simple);
    assert_true(by_kv > 0.0 && by_kv < 2e-3); /* halves have 11 bits; the logits are of order 1 */
    assert_true(by_isa < 1e-4);
    free(f32);
    free(f16);
    free(simple);
    ht_model_free(model);
    ht_model_free(plain);
}

/* Only the positions asked for; a reset forgets; the window limits what is seen. */
static void test_logits_from_reset_and_window(void** state)
{
    (void)state;
    const ht_ctx ctx = context(2, best_isa());
    ht_error     err = HT_ERROR_INIT;
    float        row[TINY_VOCAB], again[TINY_VOCAB];
    ht_session*  session = NULL;
    ht_model*    model   = load_tiny(tiny_create(TINY_LLAMA), &ctx);
    float*       whole   = logits_of(model, &ctx, HT_KV_TYPE_F16, N_IDS);
    assert_int_equal(ht_session_create(&session, model, N_CTX, HT_KV_TYPE_F16, &ctx, &err), HT_STATUS_OK);
    assert_int_equal(ht_session_eval(session, ids + 50, 90, 90, NULL, &err), HT_STATUS_OK);
    ht_session_reset(session);
    assert_int_equal(ht_session_eval(session, ids, N_IDS, N_IDS - 1, row, &err), HT_STATUS_OK);
    assert_memory_equal(row, whole + (N_IDS - 1) * TINY_VOCAB, sizeof row);
    ht_session_free(session);
    ht_model_free(model);
    free(whole);

    tiny_model* m = tiny_create(TINY_LLAMA);
    tiny_set_number(m, "sliding_window", 20);
    model = load_tiny(m, &ctx);
    assert_int_equal(ht_model_hparams(model)->sliding_window, 20);
    assert_int_equal(ht_session_create(&session, model, N_CTX, HT_KV_TYPE_F16, &ctx, &err), HT_STATUS_OK);
    assert_int_equal(ht_session_eval(session, ids, N_IDS, N_IDS - 1, row, &err), HT_STATUS_OK);
    ids[N_IDS - 60] ^= 1; /* two layers of window 20 reach back 38 positions, so this one is out of sight */
    ht_session_reset(session);
    assert_int_equal(ht_session_eval(session, ids, N_IDS, N_IDS - 1, again, &err), HT_STATUS_OK);
    assert_memory_equal(row, again, sizeof row);
    ids[N_IDS - 60] ^= 1;
    ids[N_IDS - 30] ^= 1; /* and this one in sight of the first layer */
    ht_session_reset(session);
    assert_int_equal(ht_session_eval(session, ids, N_IDS, N_IDS - 1, again, &err), HT_STATUS_OK);
    assert_memory_not_equal(row, again, sizeof row);
    ids[N_IDS - 30] ^= 1;
    ht_session_free(session);
    ht_model_free(model);
}

static void expect_eval_error(ht_session* session, const int32_t* tokens, int64_t n, ht_status status, const char* part)
{
    ht_error      err  = HT_ERROR_INIT;
    float         row[TINY_VOCAB];
    const int64_t past = ht_session_n_past(session);
    assert_int_equal(ht_session_eval(session, tokens, n, n - 1, row, &err), status);
    if (!strstr(err.message, part)) { fail_msg("\"%s\" is not in \"%s\"", part, err.message); }
    assert_int_equal(ht_session_n_past(session), past); /* a failed call leaves the sequence as it was */
}

static void test_eval_refusals(void** state)
{
    (void)state;
    volatile sig_atomic_t cancel = 0;
    ht_ctx        ctx     = context(1, best_isa());
    ht_error      err     = HT_ERROR_INIT;
    ht_session*   session = NULL;
    const int32_t bad[]   = { 3, TINY_VOCAB }, negative[] = { -1 };
    ctx.cancel = &cancel;
    ht_model* model = load_tiny(tiny_create(TINY_QWEN2), &ctx);
    assert_int_equal(ht_session_create(&session, model, 100, HT_KV_TYPE_F16, &ctx, &err), HT_STATUS_OK);
    expect_eval_error(session, ids, 101, HT_STATUS_ARG, "101 tokens after 0 do not fit a context of 100");
    assert_int_equal(ht_session_eval(session, ids, 99, 99, NULL, &err), HT_STATUS_OK);
    expect_eval_error(session, ids, 2, HT_STATUS_ARG, "2 tokens after 99 do not fit a context of 100");
    ht_session_reset(session);
    expect_eval_error(session, bad, 2, HT_STATUS_ARG, "token id 288 at position 1 is outside the vocabulary of 288");
    expect_eval_error(session, negative, 1, HT_STATUS_ARG, "token id -1");
    cancel = 1;
    expect_eval_error(session, ids, 5, HT_STATUS_CANCELLED, "interrupted");
    ht_session_free(session);
    ht_model_free(model);
}

static float huge_value(int64_t row, int64_t col)
{
    (void)row, (void)col;
    return 1e38f;
}

/* Sums that overflow are found where they first show: layer, position, token. */
static void test_nonfinite_is_located(void** state)
{
    (void)state;
    const ht_ctx ctx     = context(2, best_isa());
    ht_error     err     = HT_ERROR_INIT;
    ht_session*  session = NULL;
    tiny_model*  m       = tiny_create(TINY_LLAMA);
    tiny_fill(m, "model.layers.1.post_attention_layernorm.weight", huge_value);
    ht_model* model = load_tiny(m, &ctx);
    assert_int_equal(ht_session_create(&session, model, N_CTX, HT_KV_TYPE_F16, &ctx, &err), HT_STATUS_OK);
    expect_eval_error(session, ids, 4, HT_STATUS_NUMERIC, "position 0 (token id");
    expect_eval_error(session, ids, 4, HT_STATUS_NUMERIC, "not finite after layer 1");
    ht_session_free(session);
    ht_model_free(model);

    m = tiny_create(TINY_LLAMA);
    for (int i = 0; i < 256; i++) { tiny_set_bf16(tiny_find(m, "lm_head.weight"), 7 * 256 + i, 3e38f); }
    model = load_tiny(m, &ctx);
    assert_int_equal(ht_session_create(&session, model, N_CTX, HT_KV_TYPE_F16, &ctx, &err), HT_STATUS_OK);
    expect_eval_error(session, ids, 4, HT_STATUS_NUMERIC, "position 3 (token id");
    expect_eval_error(session, ids, 4, HT_STATUS_NUMERIC, "a logit is not finite");
    ht_session_free(session);
    ht_model_free(model);
}

typedef struct tap_count { int n_calls, n_rows; char last[64]; } tap_count;

static void count_tap(void* user, int64_t layer, const char* tensor, const float* x, int64_t n_rows, int64_t n_cols)
{
    tap_count* c = user;
    (void)layer;
    assert_true(n_cols == 256 || n_cols == 512);
    assert_true(isfinite(x[n_rows * n_cols - 1]));
    c->n_calls++;
    c->n_rows = (int)n_rows;
    snprintf(c->last, sizeof c->last, "%s", tensor);
}

static void test_tap_sees_every_linear(void** state)
{
    (void)state;
    const ht_ctx ctx     = context(1, best_isa());
    ht_error     err     = HT_ERROR_INIT;
    ht_session*  session = NULL;
    tap_count    count   = { 0 };
    ht_model*    model   = load_tiny(tiny_create(TINY_LLAMA), &ctx);
    assert_int_equal(ht_session_create(&session, model, N_CTX, HT_KV_TYPE_F16, &ctx, &err), HT_STATUS_OK);
    ht_session_set_tap(session, count_tap, &count);
    assert_int_equal(ht_session_eval(session, ids, 9, 9, NULL, &err), HT_STATUS_OK);
    assert_int_equal(count.n_calls, 2 * 7);
    assert_int_equal(count.n_rows, 9);
    assert_string_equal(count.last, "blk.1.ffn_down.weight");
    ht_session_free(session);
    ht_model_free(model);
}

/* --- what cannot be run ---------------------------------------------------------------------------------------------------- */

static void expect_load_error(const char* name, ht_status status, const char* part, const char* other_part)
{
    const ht_ctx ctx    = context(1, best_isa());
    ht_source*   source = NULL;
    ht_model*    model  = NULL;
    ht_error     err    = HT_ERROR_INIT;
    char         line[1024];
    assert_int_equal(ht_source_open(&source, temp_path(&folder, name), NULL, &ctx, &err), HT_STATUS_OK);
    assert_int_equal(ht_model_load(&model, source, HT_COMPUTE_EXACT, &ctx, &err), status);
    assert_null(model);
    ht_error_format(&err, line, sizeof line);
    if (!strstr(line, part) || !strstr(line, other_part)) { fail_msg("\"%s\" and \"%s\" are not in \"%s\"", part, other_part, line); }
    ht_source_close(source);
}

/* A change of the GGUF below: all fields zero is a sound file. */
typedef struct change { const char *arch, *missing, *extra; uint32_t n_heads_kv; uint64_t embd_cols; } change;

/* A GGUF of the llama family: one layer of width 8, 4 heads of 2, 2 kv heads, 4 tokens; all weights zero. */
static void save_gguf(const char* name, change c)
{
    static const struct { const char* key; uint32_t value; } keys[] = {
        { "block_count", 1 }, { "embedding_length", 8 }, { "feed_forward_length", 8 }, { "context_length", 64 }, { "attention.head_count", 4 },
    };
    struct { const char* name; uint64_t n_cols, n_rows; } tensors[] = {
        { "token_embd.weight", c.embd_cols ? c.embd_cols : 8, 4 }, { "blk.0.attn_norm.weight", 8, 0 }, { "blk.0.ffn_norm.weight", 8, 0 },
        { "blk.0.attn_q.weight", 8, 8 }, { "blk.0.attn_k.weight", 8, 4 }, { "blk.0.attn_v.weight", 8, 4 }, { "blk.0.attn_output.weight", 8, 8 },
        { "blk.0.ffn_gate.weight", 8, 8 }, { "blk.0.ffn_up.weight", 8, 8 }, { "blk.0.ffn_down.weight", 8, 8 }, { "output_norm.weight", 8, 0 },
        { c.extra ? c.extra : "output.weight", 8, 4 },
    };
    enum { N_KEYS = sizeof keys / sizeof *keys, N_TENSORS = sizeof tensors / sizeof *tensors };
    const char* arch   = c.arch ? c.arch : "llama";
    gguf_bytes  b      = { 0 };
    uint64_t    offset = 0;
    char        key[64];
    gb_start(&b, 3, N_TENSORS - (c.missing != NULL), N_KEYS + 3);
    gb_kv_string(&b, "general.architecture", arch);
    for (int i = 0; i < N_KEYS; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, keys[i].key);
        gb_kv_u32(&b, key, keys[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.head_count_kv", arch);
    gb_kv_u32(&b, key, c.n_heads_kv ? c.n_heads_kv : 2);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gb_key(&b, key, HT_META_TYPE_F32);
    gb_f32(&b, 1e-5f);
    for (int i = 0; i < N_TENSORS; i++) {
        if (c.missing && strcmp(c.missing, tensors[i].name) == 0) { continue; }
        gb_tensor(&b, tensors[i].name, tensors[i].n_rows ? 2 : 1, (uint64_t[]){ tensors[i].n_cols, tensors[i].n_rows }, HT_TYPE_f32, offset);
        offset += tensors[i].n_cols * (tensors[i].n_rows ? tensors[i].n_rows : 1) * sizeof(float);
    }
    gb_pad(&b, 32);
    for (uint64_t i = 0; i < offset / sizeof(float); i++) { gb_f32(&b, 0.0f); }
    gb_save(&b, &folder, name);
}

static void test_load_refusals(void** state)
{
    (void)state;
    save_gguf("banana.gguf", (change){ .arch = "banana" });
    expect_load_error("banana.gguf", HT_STATUS_UNSUPPORTED, "general.architecture: \"banana\"", "llama, qwen2, qwen3");
    save_gguf("heads.gguf", (change){ .n_heads_kv = 3 });
    expect_load_error("heads.gguf", HT_STATUS_FORMAT, "llama.attention.head_count_kv: 3 does not divide 4 heads", "heads.gguf");
    save_gguf("embd.gguf", (change){ .embd_cols = 16 });
    expect_load_error("embd.gguf", HT_STATUS_FORMAT, "token_embd.weight: expected", "found [16, 4");
    save_gguf("missing.gguf", (change){ .missing = "blk.0.attn_k.weight" });
    expect_load_error("missing.gguf", HT_STATUS_FORMAT, "blk.0.attn_k.weight", "missing");
    save_gguf("qwen.gguf", (change){ .arch = "qwen2" });
    expect_load_error("qwen.gguf", HT_STATUS_FORMAT, "blk.0.attn_q.bias", "missing");
    save_gguf("extra.gguf", (change){ .extra = "blk.0.ffn_gate_inp.weight" });
    expect_load_error("extra.gguf", HT_STATUS_UNSUPPORTED, "blk.0.ffn_gate_inp.weight", "does not use this tensor");
}

static void test_smallest_gguf_runs(void** state)
{
    (void)state;
    const ht_ctx  ctx     = context(1, best_isa());
    ht_source*    source  = NULL;
    ht_model*     model   = NULL;
    ht_session*   session = NULL;
    ht_error      err     = HT_ERROR_INIT;
    const int32_t few[3]  = { 0, 3, 1 };
    float         logits[3 * 4];
    save_gguf("sound.gguf", (change){ 0 });
    assert_int_equal(ht_source_open(&source, temp_path(&folder, "sound.gguf"), NULL, &ctx, &err), HT_STATUS_OK);
    assert_int_equal(ht_model_load(&model, source, HT_COMPUTE_EXACT, &ctx, &err), HT_STATUS_OK);
    ht_source_close(source);
    assert_int_equal(ht_model_hparams(model)->n_vocab, 4);
    assert_int_equal(ht_session_create(&session, model, 3, HT_KV_TYPE_F16, &ctx, &err), HT_STATUS_OK);
    assert_int_equal(ht_session_eval(session, few, 3, 0, logits, &err), HT_STATUS_OK);
    for (int i = 0; i < 12; i++) { assert_true(logits[i] == 0.0f); }
    ht_session_free(session);
    ht_model_free(model);
}

/* --- rope ------------------------------------------------------------------------------------------------------------------ */

static void test_rope_scaling(void** state)
{
    (void)state;
    ht_error    err  = HT_ERROR_INIT;
    ht_meta*    meta = ht_meta_create();
    ht_rope     rope = { 0 };
    const float factors[4] = { 1.0f, 2.0f, 4.0f, 8.0f };
    assert_int_equal(ht_rope_init(&rope, meta, "llama", 8, false, 10000.0f, factors, &err), HT_STATUS_OK);
    assert_true(fabs(rope.freq[0] - 1.0) < 1e-15 && fabs(rope.freq[2] - 0.01 / 4.0) < 1e-15);
    ht_rope_deinit(&rope);

    assert_int_equal(ht_meta_set_string(meta, "llama.rope.scaling.type", "linear", &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_set_f32(meta, "llama.rope.scaling.factor", 4.0f, &err), HT_STATUS_OK);
    assert_int_equal(ht_rope_init(&rope, meta, "llama", 8, false, 10000.0f, NULL, &err), HT_STATUS_OK);
    assert_true(fabs(rope.freq[0] - 0.25) < 1e-15 && rope.magnitude == 1.0f);
    ht_rope_deinit(&rope);

    /* yarn: the fastest pair keeps its frequency, the slowest is divided by the factor */
    assert_int_equal(ht_meta_set_string(meta, "llama.rope.scaling.type", "yarn", &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_set_u32(meta, "llama.rope.scaling.original_context_length", 4096, &err), HT_STATUS_OK);
    assert_int_equal(ht_rope_init(&rope, meta, "llama", 128, true, 10000.0f, NULL, &err), HT_STATUS_OK);
    assert_true(fabs(rope.freq[0] - 1.0) < 1e-15);
    assert_true(fabs(rope.freq[63] - pow(10000.0, -126.0 / 128.0) / 4.0) < 1e-15);
    assert_true(fabs((double)rope.magnitude - (1.0 + 0.1 * log(4.0))) < 1e-6);
    float head[128] = { 0 }, table[128];
    head[0] = 1.0f;
    ht_rope_fill(&rope, 1, table);
    ht_rope_turn(&rope, table, head);
    assert_true(fabs((double)head[0] - cos(1.0) * (double)rope.magnitude) < 1e-6 && fabs((double)head[64] - sin(1.0) * (double)rope.magnitude) < 1e-6);
    ht_rope_deinit(&rope);

    assert_int_equal(ht_meta_set_string(meta, "llama.rope.scaling.type", "longrope", &err), HT_STATUS_OK);
    assert_int_equal(ht_rope_init(&rope, meta, "llama", 8, false, 10000.0f, NULL, &err), HT_STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.message, "llama.rope.scaling.type: \"longrope\""));
    ht_meta_free(meta);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_and_batches_change_no_bit),
        cmocka_unit_test(test_cache_type_and_isa_change_little),
        cmocka_unit_test(test_logits_from_reset_and_window),
        cmocka_unit_test(test_eval_refusals),
        cmocka_unit_test(test_nonfinite_is_located),
        cmocka_unit_test(test_tap_sees_every_linear),
        cmocka_unit_test(test_load_refusals),
        cmocka_unit_test(test_smallest_gguf_runs),
        cmocka_unit_test(test_rope_scaling),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
