/*
 * formats/source, the family table and the shared rules: TINY checkpoints with one thing changed (bad-inputs K4, K5 30, K9, K10; the number of
 * the entry is in the test's name), and GGUF files as sources.
 */
#include "tests/tiny_model.h"

#include <math.h>

#include "formats/source.h"

static temp_folder folder;

static int setup(void** state)
{
    (void)state;
    folder = temp_folder_create();
    return 0;
}

static int teardown(void** state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

/* A fresh folder name per call. */
static const char* fresh(void)
{
    static char name[16];
    static int  n;
    snprintf(name, sizeof name, "m%d", n++);
    return name;
}

static ht_status open_path(ht_source** out, const char* path, const ht_source_options* options, test_log* kept, ht_error* err)
{
    const ht_ctx ctx = { .n_threads = 1, .log = { kept ? test_log_keep : NULL, kept } };
    return ht_source_open(out, path, options, &ctx, err);
}

/* Save, open, and expect success. The model is freed. */
static ht_source* open_tiny(tiny_model* m, test_log* kept)
{
    const char* name   = fresh();
    ht_source*  source = NULL;
    ht_error    err    = HT_ERROR_INIT;
    char        line[1024];
    tiny_save(m, &folder, name);
    tiny_free(m);
    if (open_path(&source, temp_path(&folder, name), NULL, kept, &err) != HT_STATUS_OK) { fail_msg("%s", ht_error_format(&err, line, sizeof line)); }
    return source;
}

/* Save, open, and expect a refusal whose line holds both parts. The model is freed. */
static void refuse_tiny(tiny_model* m, ht_status status, const char* part, const char* other_part)
{
    const char* name   = fresh();
    ht_source*  source = NULL;
    ht_error    err    = HT_ERROR_INIT;
    char        line[1024];
    tiny_save(m, &folder, name);
    tiny_free(m);
    assert_int_equal(open_path(&source, temp_path(&folder, name), NULL, NULL, &err), status);
    assert_null(source);
    ht_error_format(&err, line, sizeof line);
    assert_contains(line, part);
    assert_contains(line, other_part);
}

static float* read_all(const ht_source* source, const char* name)
{
    const ht_source_tensor* t = ht_source_find_tensor(source, name);
    ht_error                err = HT_ERROR_INIT;
    if (!t) { fail_msg("no tensor %s", name); }
    float* x = malloc((size_t)ht_tensor_n_elems(&t->info) * sizeof *x);
    if (ht_source_read_rows_f32(source, t, 0, ht_tensor_n_rows(&t->info), x, &err) != HT_STATUS_OK) { fail_msg("%s: %s", name, err.message); }
    return x;
}

static uint32_t get_u32(const ht_source* s, const char* key)
{
    uint32_t value = 0;
    assert_int_equal(ht_meta_get_u32(ht_source_meta(s), key, true, &value, NULL), HT_STATUS_OK);
    return value;
}

static float get_f32(const ht_source* s, const char* key)
{
    float value = 0.0f;
    assert_int_equal(ht_meta_get_f32(ht_source_meta(s), key, true, &value, NULL), HT_STATUS_OK);
    return value;
}

static bool has_key(const ht_source* s, const char* key) { return ht_meta_find(ht_source_meta(s), key) != NULL; }

static void assert_string_key(const ht_source* s, const char* key, const char* expected)
{
    const char* text = NULL;
    assert_int_equal(ht_meta_get_string(ht_source_meta(s), key, true, &text, NULL), HT_STATUS_OK);
    assert_string_equal(text, expected);
}

/* --- a sound model ------------------------------------------------------------------------------------------------------------------ */

static void test_llama_keys_and_order(void** state)
{
    (void)state;
    static const char* const block[] = { "attn_norm", "ffn_down", "ffn_gate", "ffn_up", "ffn_norm", "attn_k", "attn_output", "attn_q", "attn_v" };
    test_log   kept = { .n = 0 };
    ht_source* s    = open_tiny(tiny_create(TINY_LLAMA), &kept);
    char       name[64];
    assert_string_equal(kept.text, "");
    assert_string_equal(ht_source_kind(s), "hf");
    assert_false(ht_source_is_quantized(s));
    assert_int_equal(ht_source_n_tensors(s), 21);
    assert_string_equal(ht_source_tensor_at(s, 0)->info.name, "token_embd.weight");
    assert_string_equal(ht_source_tensor_at(s, 19)->info.name, "output_norm.weight");
    assert_string_equal(ht_source_tensor_at(s, 20)->info.name, "output.weight");
    for (int i = 0; i < 18; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", i / 9, block[i % 9]);
        assert_string_equal(ht_source_tensor_at(s, 1 + i)->info.name, name);
    }
    const struct { const char* key; uint32_t value; } numbers[] = {
        { "llama.block_count", 2 },        { "llama.context_length", 512 },         { "llama.embedding_length", 256 },
        { "llama.feed_forward_length", 512 }, { "llama.attention.head_count", 8 },  { "llama.attention.head_count_kv", 2 },
        { "llama.attention.key_length", 32 }, { "llama.attention.value_length", 32 }, { "llama.rope.dimension_count", 32 },
        { "llama.vocab_size", 288 },       { "general.file_type", 32 },             { "general.quantization_version", 2 },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        assert_int_equal(ht_meta_find(ht_source_meta(s), numbers[i].key)->type, HT_META_TYPE_U32); /* stock readers want the exact type */
        assert_int_equal(get_u32(s, numbers[i].key), numbers[i].value);
    }
    assert_true(get_f32(s, "llama.attention.layer_norm_rms_epsilon") == 1e-5f);
    assert_true(get_f32(s, "llama.rope.freq_base") == 10000.0f);
    assert_string_key(s, "general.architecture", "llama");
    assert_string_key(s, "general.size_label", "1.3M");
    assert_string_key(s, "tokenizer.ggml.pre", "smollm");
    assert_false(has_key(s, "llama.rope.scaling.type") || has_key(s, "llama.attention.sliding_window"));
    ht_source_close(s);
}

static void test_types_raw_bytes_and_values(void** state)
{
    (void)state;
    tiny_model* m = tiny_create(TINY_LLAMA);
    tiny_tensor copy = *tiny_find(m, "model.layers.0.mlp.up_proj.weight");
    copy.data = memcpy(malloc(copy.n_bytes), copy.data, copy.n_bytes);
    ht_source* s = open_tiny(m, NULL);
    const ht_source_tensor* up = ht_source_find_tensor(s, "blk.0.ffn_up.weight");
    const ht_source_tensor* norm = ht_source_find_tensor(s, "blk.0.attn_norm.weight");
    uint16_t row[2 * 256];
    assert_int_equal(up->info.type, HT_TYPE_bf16);
    assert_int_equal(up->info.ne[0], 256);
    assert_int_equal(up->info.ne[1], 512);
    assert_string_equal(up->origin, "model.layers.0.mlp.up_proj.weight");
    assert_string_equal(up->transform, "copy");
    assert_true(ht_source_has_raw(s, up));
    assert_int_equal(ht_source_read_rows_raw(s, up, 510, 2, row, NULL), HT_STATUS_OK);
    assert_memory_equal(row, copy.data + 510 * 512, sizeof row);
    assert_int_equal(ht_source_read_rows_raw(s, up, 511, 2, row, NULL), HT_STATUS_BOUNDS);
    assert_int_equal(ht_source_read_rows_raw(s, up, -1, 1, row, NULL), HT_STATUS_BOUNDS);
    float* values = read_all(s, "blk.0.ffn_up.weight");
    for (size_t i = 0; i < copy.n_bytes / 2; i++) {
        uint16_t bits;
        memcpy(&bits, copy.data + 2 * i, 2);
        assert_true(values[i] == ht_bf16_to_f32(bits));
    }
    assert_int_equal(norm->info.type, HT_TYPE_f32); /* vectors are f32 in the view */
    assert_false(ht_source_has_raw(s, norm));
    assert_int_equal(ht_source_read_rows_raw(s, norm, 0, 1, values, NULL), HT_STATUS_ARG);
    free(values);
    free(copy.data);
    ht_source_close(s);
}

/* The same tensor in another dtype; values are kept. */
static void store_as(tiny_model* m, const char* name, const char* dtype, int n_bytes_each)
{
    const tiny_tensor old = *tiny_find(m, name);
    const size_t      n   = old.n_bytes / 2;
    uint16_t*         bits = malloc(old.n_bytes);
    memcpy(bits, old.data, old.n_bytes);
    tiny_remove(m, name);
    tiny_tensor* t = tiny_add(m, old.name, dtype, n_bytes_each, old.n_dims, old.shape);
    for (size_t i = 0; i < n; i++) {
        const float    x = ht_bf16_to_f32(bits[i]);
        const double   d = (double)x;
        const uint16_t h = ht_f32_to_f16(x);
        memcpy(t->data + i * (size_t)n_bytes_each, n_bytes_each == 8 ? (const void*)&d : n_bytes_each == 4 ? (const void*)&x : (const void*)&h, (size_t)n_bytes_each);
    }
    free(bits);
}

static void test_every_float_dtype_of_a_weight(void** state)
{
    (void)state;
    const struct { const char* dtype; int n_bytes; ht_type type; bool raw; } rows[] = {
        { "F64", 8, HT_TYPE_f32, false }, { "F32", 4, HT_TYPE_f32, true }, { "F16", 2, HT_TYPE_f16, true },
    };
    ht_source* plain = open_tiny(tiny_create(TINY_LLAMA), NULL);
    float*     expected = read_all(plain, "blk.0.attn_q.weight");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tiny_model* m = tiny_create(TINY_LLAMA);
        store_as(m, "model.embed_tokens.weight", rows[i].dtype, rows[i].n_bytes);
        store_as(m, "model.layers.0.self_attn.q_proj.weight", rows[i].dtype, rows[i].n_bytes);
        store_as(m, "model.norm.weight", rows[i].dtype, rows[i].n_bytes);
        ht_source*              s = open_tiny(m, NULL);
        const ht_source_tensor* q = ht_source_find_tensor(s, "blk.0.attn_q.weight");
        float*                  x = read_all(s, "blk.0.attn_q.weight");
        assert_int_equal(q->info.type, rows[i].type);
        assert_int_equal(ht_source_has_raw(s, q), rows[i].raw);
        assert_int_equal(get_u32(s, "general.file_type"), rows[i].type == HT_TYPE_f16 ? 1 : 0);
        assert_int_equal(ht_source_has_raw(s, ht_source_find_tensor(s, "output_norm.weight")), rows[i].type == HT_TYPE_f32 && rows[i].raw);
        for (int k = 0; k < 65536; k++) { assert_true(x[k] == (rows[i].n_bytes == 2 ? ht_f16_to_f32(ht_f32_to_f16(expected[k])) : expected[k])); }
        free(x);
        ht_source_close(s);
    }
    free(expected);
    ht_source_close(plain);
}

static void test_sizes_may_lie_in_text_config(void** state)
{
    (void)state;
    tiny_model* m    = tiny_create(TINY_LLAMA);
    cJSON*      text = cJSON_Duplicate(m->config, 1);
    tiny_set_number(m, "hidden_size", 999);
    cJSON_DeleteItemFromObject(m->config, "rms_norm_eps");
    tiny_set(m, "text_config", text);
    ht_source* s = open_tiny(m, NULL);
    assert_int_equal(get_u32(s, "llama.embedding_length"), 256);
    ht_source_close(s);
}

/* --- 14, 15: empty, scalar and integer tensors; tensors that nothing asks for -------------------------------------------------------- */

static void test_15_empty_and_scalar_tensors_are_left_out(void** state)
{
    (void)state;
    const int64_t none[] = { 0, 4 }, one[] = { 1 };
    tiny_model* m    = tiny_create(TINY_LLAMA);
    test_log    kept = { .n = 0 };
    tiny_add(m, "a", "F32", 4, 2, none);
    tiny_add(m, "s", "F32", 4, 0, none);
    tiny_add(m, "ids", "I64", 8, 1, one);
    tiny_add(m, "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", 4, 1, one);
    ht_source* s = open_tiny(m, &kept);
    assert_contains(kept.text, "a has no elements: left out");
    assert_contains(kept.text, "s is a single number: left out");
    assert_contains(kept.text, "ids has integers (I64), not weights: left out");
    assert_contains(kept.text, "inv_freq is not needed and left out");
    assert_int_equal(ht_source_n_tensors(s), 21);
    ht_source_close(s);
}

static void test_27_tensors_without_a_place_are_an_error(void** state)
{
    (void)state;
    const int64_t shape[] = { 4, 4 };
    tiny_model* m = tiny_create(TINY_LLAMA);
    tiny_add(m, "model.layers.0.mlp.extra.weight", "BF16", 2, 2, shape);
    tiny_add(m, "model.layers.2.mlp.up_proj.weight", "BF16", 2, 2, shape); /* there are two layers */
    refuse_tiny(m, HT_STATUS_UNSUPPORTED, "2 tensors unknown to family llama", "model.layers.0.mlp.extra.weight, model.layers.2.mlp.up_proj.weight");
    m = tiny_create(TINY_LLAMA);
    for (int i = 0; i < 8; i++) {
        char name[32];
        snprintf(name, sizeof name, "extra.%d", i);
        tiny_add(m, name, "BF16", 2, 2, shape);
    }
    refuse_tiny(m, HT_STATUS_UNSUPPORTED, "extra.0, extra.1, extra.2, extra.3, extra.4, extra.5 and 2 more", "8 tensors");
}

static void test_missing_tensors_are_named(void** state)
{
    (void)state;
    tiny_model* m = tiny_create(TINY_LLAMA);
    tiny_remove(m, "model.layers.1.mlp.up_proj.weight");
    tiny_remove(m, "model.norm.weight");
    refuse_tiny(m, HT_STATUS_FORMAT, "missing tensors model.layers.1.mlp.up_proj.weight, model.norm.weight", "(format)");
    m = tiny_create(TINY_LLAMA);
    tiny_remove(m, "model.embed_tokens.weight");
    refuse_tiny(m, HT_STATUS_FORMAT, "missing tensor model.embed_tokens.weight", "");
    m = tiny_create(TINY_LLAMA);
    tiny_remove(m, "lm_head.weight");
    refuse_tiny(m, HT_STATUS_FORMAT, "missing tensor lm_head.weight", "tie_word_embeddings is false");
}

static void test_unknown_families(void** state)
{
    (void)state;
    tiny_model* m = tiny_create(TINY_LLAMA);
    tiny_set_json(m, "architectures", "[\"FancyForCausalLM\"]");
    refuse_tiny(m, HT_STATUS_UNSUPPORTED, "architecture \"FancyForCausalLM\" is not supported", "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM");
    m = tiny_create(TINY_LLAMA);
    tiny_set_json(m, "model_type", "\"qwen2\"");
    refuse_tiny(m, HT_STATUS_FORMAT, "LlamaForCausalLM", "\"qwen2\": these are two families");
    m = tiny_create(TINY_LLAMA);
    cJSON_DeleteItemFromObject(m->config, "architectures");
    ht_source_close(open_tiny(m, NULL)); /* model_type is enough */
    m = tiny_create(TINY_LLAMA);
    tiny_set_json(m, "hidden_act", "\"gelu\"");
    refuse_tiny(m, HT_STATUS_UNSUPPORTED, "hidden_act \"gelu\"", "silu");
    m = tiny_create(TINY_LLAMA);
    tiny_set_number(m, "num_hidden_layers", 2.5);
    refuse_tiny(m, HT_STATUS_FORMAT, "config.json", "num_hidden_layers: 2.5 is not an integer");
}

/* --- K4 layout ---------------------------------------------------------------------------------------------------------------------- */

static float row_number(int64_t row, int64_t col)
{
    (void)col;
    return (float)row;
}

static float col_number(int64_t row, int64_t col)
{
    (void)row;
    return (float)col;
}

/* The row (element) of HF that a row of the GGUF must show. */
static int64_t expected_row(int64_t row, int64_t d) { return row / d * d + (row % d % 2) * (d / 2) + row % d / 2; }

static void test_24_rope_rows_with_grouped_heads(void** state)
{
    (void)state;
    tiny_model* m = tiny_create(TINY_LLAMA);
    tiny_fill(m, "model.layers.1.self_attn.q_proj.weight", row_number);
    tiny_fill(m, "model.layers.1.self_attn.k_proj.weight", row_number);
    tiny_fill(m, "model.layers.1.self_attn.v_proj.weight", row_number);
    ht_source* s = open_tiny(m, NULL);
    float *q = read_all(s, "blk.1.attn_q.weight"), *k = read_all(s, "blk.1.attn_k.weight"), *v = read_all(s, "blk.1.attn_v.weight");
    static const float first[] = { 0, 16, 1, 17, 2, 18 };
    for (int r = 0; r < 6; r++) { assert_true(q[r * 256] == first[r] && k[r * 256] == first[r] && k[(r + 32) * 256] == first[r] + 32); }
    for (int64_t r = 0; r < 256; r++) { assert_true(q[r * 256 + 255] == (float)expected_row(r, 32)); }
    for (int64_t r = 0; r < 64; r++) { assert_true(k[r * 256] == (float)expected_row(r, 32) && v[r * 256] == (float)r); }

    const ht_source_tensor* t = ht_source_find_tensor(s, "blk.1.attn_k.weight");
    uint16_t raw[3 * 256];
    assert_string_equal(t->transform, "permute");
    assert_int_equal(ht_source_read_rows_raw(s, t, 31, 3, raw, NULL), HT_STATUS_OK);
    assert_true(ht_bf16_to_f32(raw[0]) == 31 && ht_bf16_to_f32(raw[256]) == 32 && ht_bf16_to_f32(raw[512]) == 48);
    free(q), free(k), free(v);
    ht_source_close(s);
}

static void test_25_head_dim_of_its_own(void** state)
{
    (void)state;
    tiny_model* m = tiny_create(TINY_LLAMA);
    tiny_set_number(m, "head_dim", 64);
    tiny_rebuild(m, TINY_LLAMA);
    ht_source* s = open_tiny(m, NULL);
    assert_int_equal(get_u32(s, "llama.attention.key_length"), 64);
    assert_int_equal(get_u32(s, "llama.attention.value_length"), 64);
    assert_int_equal(get_u32(s, "llama.rope.dimension_count"), 64);
    assert_int_equal(ht_source_find_tensor(s, "blk.0.attn_q.weight")->info.ne[1], 512);
    assert_int_equal(ht_source_find_tensor(s, "blk.0.attn_output.weight")->info.ne[0], 512);
    ht_source_close(s);

    m = tiny_create(TINY_LLAMA);
    tiny_set_number(m, "head_dim", 64);
    tiny_rebuild(m, TINY_LLAMA);
    cJSON_DeleteItemFromObject(m->config, "head_dim");
    refuse_tiny(m, HT_STATUS_FORMAT, "model.layers.0.self_attn.", "expected 64 (num_key_value_heads x head_dim)");

    m = tiny_create(TINY_LLAMA);
    cJSON_DeleteItemFromObject(m->config, "head_dim");
    s = open_tiny(m, NULL); /* hidden / heads, and no key of its own */
    assert_int_equal(get_u32(s, "llama.rope.dimension_count"), 32);
    assert_false(has_key(s, "llama.attention.key_length"));
    ht_source_close(s);
}

static void test_26_vocabulary_tokenizer_and_rows(void** state)
{
    (void)state;
    const char* name   = fresh();
    ht_source*  source = NULL;
    ht_error    err    = HT_ERROR_INIT;
    test_log    kept   = { .n = 0 };
    char        line[1024], path[64];
    tiny_model* m = tiny_create(TINY_LLAMA); /* (i) the tokenizer needs more rows */
    for (int i = 288; i < 292; i++) {
        cJSON* token = cJSON_Duplicate(cJSON_GetArrayItem(cJSON_GetObjectItem(m->tokenizer, "added_tokens"), 0), 1);
        snprintf(line, sizeof line, "<x%d>", i);
        cJSON_SetNumberValue(cJSON_GetObjectItem(token, "id"), i);
        cJSON_SetValuestring(cJSON_GetObjectItem(token, "content"), "<s>");
        cJSON_ReplaceItemInObject(token, "content", cJSON_CreateString(line));
        cJSON_AddItemToArray(cJSON_GetObjectItem(m->tokenizer, "added_tokens"), token);
    }
    tiny_save(m, &folder, name);
    snprintf(path, sizeof path, "%s/added_tokens.json", name);
    temp_write_text(&folder, path, "{\"<x288>\":288,\"<x289>\":289,\"<x290>\":290,\"<x291>\":291}");
    assert_int_equal(open_path(&source, temp_path(&folder, name), NULL, NULL, &err), HT_STATUS_FORMAT);
    ht_error_format(&err, line, sizeof line);
    assert_contains(line, "288");
    assert_contains(line, "29");
    tiny_free(m);

    m = tiny_create(TINY_LLAMA); /* (ii) padded rows */
    tiny_set_number(m, "vocab_size", 304);
    tiny_rebuild(m, TINY_LLAMA);
    ht_source*        s      = open_tiny(m, NULL);
    const ht_meta_kv* tokens = ht_meta_find(ht_source_meta(s), "tokenizer.ggml.tokens");
    assert_int_equal(tokens->n_values, 304);
    assert_string_equal(tokens->strings[303].data, "[PAD303]");
    assert_int_equal(get_u32(s, "llama.vocab_size"), 304);
    ht_source_close(s);

    m = tiny_create(TINY_LLAMA); /* (iii) rows win */
    tiny_set_number(m, "vocab_size", 280);
    s = open_tiny(m, &kept);
    assert_contains(kept.text, "vocab_size is 280, model.embed_tokens.weight has 288 rows");
    assert_int_equal(get_u32(s, "llama.vocab_size"), 288);
    ht_source_close(s);

    m = tiny_create(TINY_LLAMA); /* (iv) two vocabularies */
    tiny_set_number(m, "vocab_size", 304);
    tiny_remove(m, "model.embed_tokens.weight");
    tiny_add_weight(m, "model.embed_tokens.weight", 304, 256);
    refuse_tiny(m, HT_STATUS_FORMAT, "lm_head.weight: 288 rows, expected 304", "rows of the embedding");
}

static void test_27_biases_and_families_that_do_not_permute(void** state)
{
    (void)state;
    static const char* const kinds[] = { "q", "k", "v" };
    for (int family = TINY_LLAMA; family <= TINY_QWEN2; family++) {
        tiny_model* m = tiny_create(family == TINY_LLAMA ? TINY_LLAMA : TINY_QWEN2);
        char        name[96];
        if (family == TINY_LLAMA) {
            tiny_set_bool(m, "attention_bias", 1);
            tiny_add_weight(m, "model.layers.0.self_attn.q_proj.bias", 256, 0);
            tiny_add_weight(m, "model.layers.0.self_attn.k_proj.bias", 64, 0);
            tiny_add_weight(m, "model.layers.0.self_attn.v_proj.bias", 64, 0);
            tiny_add_weight(m, "model.layers.1.self_attn.k_proj.bias", 64, 0);
            tiny_fill(m, "model.layers.1.self_attn.k_proj.bias", col_number);
            store_as(m, "model.layers.1.self_attn.k_proj.bias", "F32", 4);
        }
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "model.layers.0.self_attn.%s_proj.bias", kinds[i]);
            tiny_fill(m, name, col_number);
            snprintf(name, sizeof name, "model.layers.0.self_attn.%s_proj.weight", kinds[i]);
            tiny_fill(m, name, row_number);
        }
        ht_source* s = open_tiny(m, NULL);
        for (int i = 0; i < 3; i++) {
            const bool moves = family == TINY_LLAMA && i < 2;
            snprintf(name, sizeof name, "blk.0.attn_%s.bias", kinds[i]);
            float* bias = read_all(s, name);
            snprintf(name, sizeof name, "blk.0.attn_%s.weight", kinds[i]);
            float* weight = read_all(s, name);
            for (int64_t r = 0; r < (i == 0 ? 256 : 64); r++) {
                const float expected = (float)(moves ? expected_row(r, 32) : r);
                assert_true(bias[r] == expected && weight[r * 256] == expected);
            }
            free(bias), free(weight);
        }
        if (family == TINY_LLAMA) { /* a vector with raw bytes moves as well */
            float raw[64];
            assert_int_equal(ht_source_read_rows_raw(s, ht_source_find_tensor(s, "blk.1.attn_k.bias"), 0, 1, raw, NULL), HT_STATUS_OK);
            for (int64_t i = 0; i < 64; i++) { assert_true(raw[i] == (float)expected_row(i, 32)); }
        }
        ht_source_close(s);
    }
    tiny_model* m = tiny_create(TINY_QWEN2);
    tiny_remove(m, "model.layers.1.self_attn.k_proj.bias");
    refuse_tiny(m, HT_STATUS_FORMAT, "missing tensor model.layers.1.self_attn.k_proj.bias", "");
}

static void test_qwen3_norms_of_q_and_k(void** state)
{
    (void)state;
    tiny_model* m = tiny_create(TINY_QWEN3);
    tiny_fill(m, "model.layers.0.self_attn.q_norm.weight", col_number);
    ht_source* s = open_tiny(m, NULL);
    float*     x = read_all(s, "blk.0.attn_q_norm.weight");
    for (int i = 0; i < 32; i++) { assert_true(x[i] == (float)i); }
    assert_int_equal(get_u32(s, "qwen3.attention.key_length"), 32);
    assert_false(has_key(s, "qwen3.vocab_size"));
    free(x);
    ht_source_close(s);
}

static void test_tied_heads(void** state)
{
    (void)state;
    test_log    kept = { .n = 0 };
    tiny_model* m    = tiny_create(TINY_LLAMA); /* differs: kept */
    tiny_set_bool(m, "tie_word_embeddings", 1);
    ht_source* s = open_tiny(m, &kept);
    assert_contains(kept.text, "tie_word_embeddings is true, but lm_head.weight differs");
    assert_non_null(ht_source_find_tensor(s, "output.weight"));
    ht_source_close(s);

    m = tiny_create(TINY_LLAMA); /* a copy: left out */
    tiny_set_bool(m, "tie_word_embeddings", 1);
    memcpy(tiny_find(m, "lm_head.weight")->data, tiny_find(m, "model.embed_tokens.weight")->data, 288 * 512);
    s = open_tiny(m, &kept);
    assert_contains(kept.text, "lm_head.weight equals model.embed_tokens.weight and is left out");
    assert_null(ht_source_find_tensor(s, "output.weight"));
    ht_source_close(s);

    m = tiny_create(TINY_LLAMA); /* none: nothing to say */
    tiny_set_bool(m, "tie_word_embeddings", 1);
    tiny_remove(m, "lm_head.weight");
    s = open_tiny(m, NULL);
    assert_int_equal(ht_source_n_tensors(s), 20);
    ht_source_close(s);
}

/* --- K5 30 -------------------------------------------------------------------------------------------------------------------------- */

static void test_30_nan_and_inf_in_the_source(void** state)
{
    (void)state;
    const struct { float value; const char* text; } bad[] = { { NAN, "nan" }, { INFINITY, "inf" } };
    for (int i = 0; i < 2; i++) {
        const char*             name    = fresh();
        const ht_source_options lenient = { .allow_nonfinite = true };
        tiny_model*             m       = tiny_create(TINY_LLAMA);
        ht_source*              s       = NULL;
        ht_error                err     = HT_ERROR_INIT;
        float                   row[512];
        uint16_t                raw[512];
        tiny_set_bf16(tiny_find(m, "model.layers.0.mlp.down_proj.weight"), 3 * 512 + 17, bad[i].value);
        tiny_save(m, &folder, name);
        tiny_free(m);
        assert_int_equal(open_path(&s, temp_path(&folder, name), NULL, NULL, &err), HT_STATUS_OK);
        const ht_source_tensor* t = ht_source_find_tensor(s, "blk.0.ffn_down.weight");
        assert_int_equal(ht_source_read_rows_f32(s, t, 2, 1, row, &err), HT_STATUS_OK);
        assert_int_equal(ht_source_read_rows_f32(s, t, 3, 1, row, &err), HT_STATUS_NUMERIC);
        assert_string_equal(err.tensor, "blk.0.ffn_down.weight");
        assert_contains(err.message, "row 3, column 17: the value is ");
        assert_contains(err.message, bad[i].text);
        assert_contains(err.message, "model.layers.0.mlp.down_proj.weight");
        ht_error_clear(&err);
        assert_int_equal(ht_source_read_rows_raw(s, t, 3, 1, raw, &err), HT_STATUS_NUMERIC);
        assert_contains(err.message, "row 3, column 17");
        ht_source_close(s);
        assert_int_equal(open_path(&s, temp_path(&folder, name), &lenient, NULL, NULL), HT_STATUS_OK);
        t = ht_source_find_tensor(s, "blk.0.ffn_down.weight");
        assert_int_equal(ht_source_read_rows_f32(s, t, 3, 1, row, NULL), HT_STATUS_OK);
        assert_true(isnan(row[17]) || isinf(row[17]));
        assert_int_equal(ht_source_read_rows_raw(s, t, 3, 1, raw, NULL), HT_STATUS_OK);
        ht_source_close(s);
    }
}

/* --- K9 quantized inputs ------------------------------------------------------------------------------------------------------------ */

/* TINY whose o_proj of layer 0 (256 x 256) is FP8 ones (0x38), and a scale beside it; `scale_name` NULL: none. */
static tiny_model* tiny_fp8(const char* scale_name, const int64_t* scale_shape, int n_dims, const float* scales)
{
    const int64_t shape[] = { 256, 256 };
    tiny_model*   m = tiny_create(TINY_LLAMA);
    char          name[96];
    tiny_remove(m, "model.layers.0.self_attn.o_proj.weight");
    tiny_tensor* w = tiny_add(m, "model.layers.0.self_attn.o_proj.weight", "F8_E4M3", 1, 2, shape);
    memset(w->data, 0x38, w->n_bytes);
    tiny_set_json(m, "quantization_config", "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}");
    if (scale_name) {
        snprintf(name, sizeof name, "model.layers.0.self_attn.o_proj.%s", scale_name);
        tiny_tensor* t = tiny_add(m, name, "F32", 4, n_dims, scale_shape);
        memcpy(t->data, scales, t->n_bytes);
    }
    return m;
}

static void test_51_fp8_with_block_scales(void** state)
{
    (void)state;
    const int64_t two[] = { 2, 2 }, scalar[] = { 1 }, rows[] = { 256, 1 };
    const float   scales[] = { 1, 2, 3, 4 };
    float         per_row[256];
    ht_source*    s = open_tiny(tiny_fp8("weight_scale_inv", two, 2, scales), NULL);
    const ht_source_tensor* t = ht_source_find_tensor(s, "blk.0.attn_output.weight");
    float*        x = read_all(s, "blk.0.attn_output.weight");
    assert_int_equal(t->info.type, HT_TYPE_bf16);
    assert_string_equal(t->transform, "fp8-dequant");
    assert_false(ht_source_has_raw(s, t));
    for (int r = 0; r < 256; r++) {
        for (int c = 0; c < 256; c++) { assert_true(x[r * 256 + c] == scales[r / 128 * 2 + c / 128]); }
    }
    free(x);
    ht_source_close(s);

    s = open_tiny(tiny_fp8("weight_scale", scalar, 1, &scales[2]), NULL); /* per tensor */
    x = read_all(s, "blk.0.attn_output.weight");
    assert_true(x[0] == 3.0f && x[65535] == 3.0f);
    free(x);
    ht_source_close(s);

    for (int i = 0; i < 256; i++) { per_row[i] = (float)i; }
    s = open_tiny(tiny_fp8("weight_scale", rows, 2, per_row), NULL);
    x = read_all(s, "blk.0.attn_output.weight");
    assert_true(x[255] == 0.0f && x[256 * 77] == 77.0f);
    free(x);
    ht_source_close(s);
}

static void test_51_fp8_ragged_edges_and_permuted_rows(void** state)
{
    (void)state;
    const int64_t shape[] = { 192, 256 }, two[] = { 2, 2 };
    const float   scales[] = { 1, 2, 3, 4 };
    tiny_model*   m = tiny_create(TINY_LLAMA); /* 6 heads of 32: q has 192 rows, so its second row of blocks has 64 */
    tiny_set_number(m, "num_attention_heads", 6);
    tiny_rebuild(m, TINY_LLAMA);
    tiny_remove(m, "model.layers.0.self_attn.q_proj.weight");
    tiny_tensor* w = tiny_add(m, "model.layers.0.self_attn.q_proj.weight", "F8_E4M3", 1, 2, shape);
    memset(w->data, 0x38, w->n_bytes);
    tiny_tensor* t = tiny_add(m, "model.layers.0.self_attn.q_proj.weight_scale_inv", "F32", 4, 2, two);
    memcpy(t->data, scales, sizeof scales);
    tiny_set_json(m, "quantization_config", "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}");
    ht_source* s = open_tiny(m, NULL);
    float*     x = read_all(s, "blk.0.attn_q.weight");
    for (int64_t r = 0; r < 192; r++) {
        for (int64_t c = 0; c < 256; c++) { assert_true(x[r * 256 + c] == scales[expected_row(r, 32) / 128 * 2 + c / 128]); }
    }
    free(x);
    ht_source_close(s);
}

static void test_51_fp8_faults(void** state)
{
    (void)state;
    const int64_t three[] = { 3, 2 }, two[] = { 2, 2 };
    const float   scales[] = { 1, 2, 3, 4, 5, 6 };
    refuse_tiny(tiny_fp8(NULL, NULL, 0, NULL), HT_STATUS_FORMAT, "model.layers.0.self_attn.o_proj.weight", "without its scale");
    refuse_tiny(tiny_fp8("weight_scale_inv", three, 2, scales), HT_STATUS_FORMAT, "shape [3, 2]", "need [2, 2]");
    tiny_model* m = tiny_fp8("weight_scale_inv", two, 2, scales);
    tiny_set_json(m, "quantization_config", "{\"quant_method\":\"fp8\"}");
    refuse_tiny(m, HT_STATUS_FORMAT, "has blocks, but quantization_config has no weight_block_size", "");

    m = tiny_fp8("weight_scale_inv", two, 2, scales); /* a NaN byte is found as in 30 */
    tiny_find(m, "model.layers.0.self_attn.o_proj.weight")->data[5 * 256 + 6] = 0x7F;
    ht_source* s   = open_tiny(m, NULL);
    ht_error   err = HT_ERROR_INIT;
    float*     x   = malloc(65536 * sizeof *x);
    assert_int_equal(ht_source_read_rows_f32(s, ht_source_find_tensor(s, "blk.0.attn_output.weight"), 0, 256, x, &err), HT_STATUS_NUMERIC);
    assert_contains(err.message, "row 5, column 6");
    free(x);
    ht_source_close(s);
}

static void test_52_other_quantizers(void** state)
{
    (void)state;
    const int64_t packed[] = { 32768, 1 }, few[] = { 16 };
    tiny_model*   m = tiny_create(TINY_LLAMA);
    tiny_remove(m, "model.layers.0.self_attn.q_proj.weight");
    tiny_add(m, "model.layers.0.self_attn.q_proj.weight", "U8", 1, 2, packed);
    tiny_add(m, "model.layers.0.self_attn.q_proj.weight.absmax", "F32", 4, 1, few);
    tiny_add(m, "model.layers.0.self_attn.q_proj.weight.quant_map", "F32", 4, 1, few);
    tiny_add(m, "model.layers.0.self_attn.q_proj.weight.quant_state.bitsandbytes__nf4", "U8", 1, 1, few);
    refuse_tiny(m, HT_STATUS_UNSUPPORTED, "source is already quantized (bitsandbytes nf4); convert from the original: it has ",
                "q_proj.weight.absmax, model.layers.0.self_attn.q_proj.weight.quant_map, model.layers.0.self_attn.q_proj.weight.quant_state.bitsandbytes__nf4");
    m = tiny_create(TINY_LLAMA);
    tiny_add(m, "lm_head.weight._scale", "F32", 4, 1, few);
    refuse_tiny(m, HT_STATUS_UNSUPPORTED, "already quantized (quanto)", "lm_head.weight._scale");
    m = tiny_create(TINY_LLAMA);
    tiny_set_json(m, "quantization_config", "{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true,\"bnb_4bit_quant_type\":\"nf4\"}");
    refuse_tiny(m, HT_STATUS_UNSUPPORTED, "source is already quantized (bitsandbytes nf4); convert from the original", "");
    m = tiny_create(TINY_LLAMA);
    tiny_set_json(m, "quantization_config", "{\"quant_method\":\"gptq\",\"bits\":4}");
    refuse_tiny(m, HT_STATUS_UNSUPPORTED, "already quantized (gptq 4-bit)", "");
    m = tiny_create(TINY_LLAMA);
    tiny_add(m, "model.layers.0.mlp.up_proj.qweight", "I32", 4, 1, few);
    refuse_tiny(m, HT_STATUS_UNSUPPORTED, "already quantized (GPTQ or AWQ)", "up_proj.qweight");
    m = tiny_create(TINY_LLAMA);
    tiny_add(m, "lm_head.weight_scale", "F32", 4, 1, few);
    refuse_tiny(m, HT_STATUS_UNSUPPORTED, "already quantized", "lm_head.weight_scale");
}

/* --- K10 rope and windows ----------------------------------------------------------------------------------------------------------- */

static void test_54_llama3_frequency_factors(void** state)
{
    (void)state;
    static const char json[] = "{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                               "\"original_max_position_embeddings\":8192}";
    static const float middle[] = { 1.553415f, 2.69453f, 5.257327f };
    tiny_model* m = tiny_create(TINY_LLAMA);
    tiny_set_number(m, "head_dim", 64);
    tiny_set_number(m, "rope_theta", 500000);
    tiny_set_json(m, "rope_scaling", json);
    tiny_rebuild(m, TINY_LLAMA);
    ht_source* s = open_tiny(m, NULL);
    float*     x = read_all(s, "rope_freqs.weight");
    assert_int_equal(ht_source_find_tensor(s, "rope_freqs.weight")->info.ne[0], 32);
    assert_string_equal(ht_source_find_tensor(s, "rope_freqs.weight")->origin, "(computed)");
    for (int i = 0; i < 32; i++) {
        const float expected = i < 15 ? 1.0f : i < 18 ? middle[i - 15] : 8.0f;
        assert_true(fabsf(x[i] - expected) < 1e-5f);
    }
    assert_false(has_key(s, "llama.rope.scaling.type"));
    assert_true(get_f32(s, "llama.rope.freq_base") == 500000.0f);
    free(x);
    ht_source_close(s);
}

static void test_55_other_rope_kinds(void** state)
{
    (void)state;
    static const tiny_family families[] = { TINY_LLAMA, TINY_QWEN2, TINY_QWEN3 };
    static const char* const archs[]    = { "llama", "qwen2", "qwen3" };
    char key[64];
    for (int i = 0; i < 3; i++) { /* yarn in every family, in the old and the new place */
        tiny_model* m = tiny_create(families[i]);
        tiny_set_json(m, i == 1 ? "rope_parameters" : "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":128,\"beta_fast\":32}");
        ht_source* s = open_tiny(m, NULL);
        snprintf(key, sizeof key, "%s.rope.scaling.type", archs[i]);
        assert_string_key(s, key, "yarn");
        snprintf(key, sizeof key, "%s.rope.scaling.factor", archs[i]);
        assert_true(get_f32(s, key) == 4.0f);
        snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", archs[i]);
        assert_int_equal(get_u32(s, key), 128);
        snprintf(key, sizeof key, "%s.rope.scaling.yarn_beta_fast", archs[i]);
        assert_true(get_f32(s, key) == 32.0f);
        ht_source_close(s);
    }
    tiny_model* m = tiny_create(TINY_LLAMA);
    tiny_set_json(m, "rope_scaling", "{\"type\":\"linear\",\"factor\":2.0}");
    ht_source* s = open_tiny(m, NULL);
    assert_string_key(s, "llama.rope.scaling.type", "linear");
    assert_true(get_f32(s, "llama.rope.scaling.factor") == 2.0f);
    ht_source_close(s);

    const struct { const char* json; const char* part; ht_status status; } bad[] = {
        { "{\"type\":\"longrope\"}", "rope_scaling.type: \"longrope\" is not supported", HT_STATUS_UNSUPPORTED },
        { "{\"rope_type\":\"proportional\"}", "rope_scaling.rope_type: \"proportional\" is not supported", HT_STATUS_UNSUPPORTED },
        { "{\"rope_type\":\"dynamic\",\"factor\":2}", "\"dynamic\" is not supported", HT_STATUS_UNSUPPORTED },
        { "{\"rope_type\":\"yarn\"}", "rope_scaling.factor: is missing", HT_STATUS_FORMAT },
        { "{\"rope_type\":\"yarn\",\"type\":\"linear\",\"factor\":2}", "disagree", HT_STATUS_FORMAT },
        { "{\"rope_type\":\"yarn\",\"factor\":2,\"mscale_all_dim\":1}", "rope_scaling.mscale_all_dim", HT_STATUS_UNSUPPORTED },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        m = tiny_create(TINY_LLAMA);
        tiny_set_json(m, "rope_scaling", bad[i].json);
        refuse_tiny(m, bad[i].status, bad[i].part, "config.json");
    }
}

static void test_57_sliding_windows(void** state)
{
    (void)state;
    tiny_model* m = tiny_create(TINY_LLAMA);
    tiny_set_json(m, "architectures", "[\"MistralForCausalLM\"]");
    tiny_set_json(m, "model_type", "\"mistral\"");
    tiny_set_number(m, "sliding_window", 64);
    ht_source* s = open_tiny(m, NULL); /* on */
    assert_int_equal(get_u32(s, "llama.attention.sliding_window"), 64);
    assert_false(has_key(s, "llama.attention.sliding_window_pattern"));
    ht_source_close(s);

    m = tiny_create(TINY_LLAMA);
    tiny_set_json(m, "sliding_window", "null");
    s = open_tiny(m, NULL); /* null */
    assert_false(has_key(s, "llama.attention.sliding_window"));
    ht_source_close(s);

    for (int with_switch = 0; with_switch < 2; with_switch++) { /* off, and off by default in qwen2 */
        m = tiny_create(TINY_QWEN2);
        tiny_set_number(m, "sliding_window", 64);
        tiny_set_number(m, "max_window_layers", 0);
        if (with_switch) { tiny_set_bool(m, "use_sliding_window", 0); }
        s = open_tiny(m, NULL);
        assert_false(has_key(s, "qwen2.attention.sliding_window"));
        ht_source_close(s);
    }

    for (int by_types = 0; by_types < 2; by_types++) { /* one layer of two */
        m = tiny_create(TINY_QWEN2);
        tiny_set_number(m, "sliding_window", 64);
        if (by_types) { tiny_set_json(m, "layer_types", "[\"full_attention\",\"sliding_attention\"]"); }
        else { tiny_set_bool(m, "use_sliding_window", 1), tiny_set_number(m, "max_window_layers", 1); }
        s = open_tiny(m, NULL);
        const ht_meta_kv* pattern = NULL;
        assert_int_equal(get_u32(s, "qwen2.attention.sliding_window"), 64);
        assert_int_equal(ht_meta_get_array(ht_source_meta(s), "qwen2.attention.sliding_window_pattern", true, HT_META_TYPE_BOOL, &pattern, NULL), HT_STATUS_OK);
        assert_int_equal(pattern->n_values, 2);
        assert_memory_equal(pattern->data, "\0\1", 2);
        ht_source_close(s);
    }

    m = tiny_create(TINY_QWEN2);
    tiny_set_number(m, "sliding_window", 64);
    tiny_set_bool(m, "use_sliding_window", 1);
    tiny_set_number(m, "max_window_layers", 2);
    s = open_tiny(m, NULL); /* no layer slides */
    assert_false(has_key(s, "qwen2.attention.sliding_window"));
    ht_source_close(s);

    m = tiny_create(TINY_QWEN2);
    tiny_set_json(m, "layer_types", "[\"full_attention\",\"linear_attention\"]");
    refuse_tiny(m, HT_STATUS_UNSUPPORTED, "layer_types[1]: \"linear_attention\"", "config.json");
    m = tiny_create(TINY_QWEN2);
    tiny_set_json(m, "layer_types", "[\"full_attention\"]");
    refuse_tiny(m, HT_STATUS_FORMAT, "layer_types has 1 entries for 2 layers", "");
}

/* --- generation_config.json --------------------------------------------------------------------------------------------------------- */

static void test_sampling_keys(void** state)
{
    (void)state;
    const char*  name = fresh();
    ht_source*   s    = NULL;
    test_log     kept = { .n = 0 };
    char         path[64];
    tiny_model*  m = tiny_create(TINY_LLAMA);
    tiny_save(m, &folder, name);
    tiny_free(m);
    snprintf(path, sizeof path, "%s/generation_config.json", name);
    temp_write_text(&folder, path, "{\"do_sample\":true,\"temperature\":0.6,\"top_p\":0.9,\"top_k\":40,\"repetition_penalty\":1.1,\"min_p\":\"x\"}");
    assert_int_equal(open_path(&s, temp_path(&folder, name), NULL, &kept, NULL), HT_STATUS_OK);
    assert_true(get_f32(s, "general.sampling.temp") == 0.6f && get_f32(s, "general.sampling.top_p") == 0.9f);
    assert_true(get_f32(s, "general.sampling.penalty_repeat") == 1.1f);
    assert_int_equal(ht_meta_find(ht_source_meta(s), "general.sampling.top_k")->type, HT_META_TYPE_I32);
    assert_false(has_key(s, "general.sampling.min_p"));
    assert_contains(kept.text, "min_p is not a usable number");
    ht_source_close(s);
    temp_write_text(&folder, path, "{ broken");
    ht_error err = HT_ERROR_INIT;
    assert_int_equal(open_path(&s, temp_path(&folder, name), NULL, &kept, &err), HT_STATUS_FORMAT);
    assert_contains(err.file, "generation_config.json");
}

/* --- GGUF as a source --------------------------------------------------------------------------------------------------------------- */

/* The tensors [first, end) of `s` as a GGUF file, as they are (vectors: their f32 values); `split_no` < 0: one file. */
static void write_gguf(const ht_source* s, const char* name, int64_t first, int64_t end, int split_no, int n_parts)
{
    const int64_t   n     = end - first;
    ht_meta*        meta  = NULL;
    ht_tensor_info* infos = calloc((size_t)n, sizeof *infos);
    void*           header = NULL;
    size_t          n_header = 0;
    uint64_t        n_file = 0;
    assert_int_equal(ht_meta_clone(&meta, ht_source_meta(s), NULL), HT_STATUS_OK);
    if (split_no >= 0) {
        const uint16_t no = (uint16_t)split_no, count = (uint16_t)n_parts;
        ht_meta_set_values(meta, "split.no", HT_META_TYPE_U16, false, 1, &no, NULL);
        ht_meta_set_values(meta, "split.count", HT_META_TYPE_U16, false, 1, &count, NULL);
        ht_meta_set_i32(meta, "split.tensors.count", (int32_t)ht_source_n_tensors(s), NULL);
    }
    for (int64_t i = 0; i < n; i++) { infos[i] = ht_source_tensor_at(s, first + i)->info; }
    assert_int_equal(ht_gguf_layout(meta, infos, n, &header, &n_header, &n_file, NULL), HT_STATUS_OK);
    uint8_t* bytes = calloc(1, (size_t)n_file);
    memcpy(bytes, header, n_header);
    for (int64_t i = 0; i < n; i++) {
        const ht_source_tensor* t    = ht_source_tensor_at(s, first + i);
        const int64_t           rows = ht_tensor_n_rows(&t->info);
        void*                   to   = bytes + n_header + infos[i].offset_bytes;
        assert_int_equal(ht_source_has_raw(s, t) ? ht_source_read_rows_raw(s, t, 0, rows, to, NULL) : ht_source_read_rows_f32(s, t, 0, rows, to, NULL), HT_STATUS_OK);
    }
    temp_write(&folder, name, bytes, (size_t)n_file);
    free(bytes), free(header), free(infos);
    ht_meta_free(meta);
}

static void assert_same_source(const ht_source* a, const ht_source* b)
{
    assert_int_equal(ht_source_n_tensors(a), ht_source_n_tensors(b));
    assert_int_equal(ht_meta_count(ht_source_meta(a)), ht_meta_count(ht_source_meta(b)));
    for (int64_t i = 0; i < ht_source_n_tensors(a); i++) {
        const ht_source_tensor *t = ht_source_tensor_at(a, i), *u = ht_source_tensor_at(b, i);
        assert_string_equal(t->info.name, u->info.name);
        assert_int_equal(t->info.type, u->info.type);
        float *x = read_all(a, t->info.name), *y = read_all(b, t->info.name);
        assert_memory_equal(x, y, (size_t)ht_tensor_n_elems(&t->info) * sizeof *x);
        free(x), free(y);
    }
}

static void test_gguf_files_as_sources(void** state)
{
    (void)state;
    ht_source *hf = open_tiny(tiny_create(TINY_LLAMA), NULL), *one = NULL, *split = NULL;
    char       hash[3][65];
    write_gguf(hf, "tiny.gguf", 0, 21, -1, 1);
    assert_int_equal(open_path(&one, temp_path(&folder, "tiny.gguf"), NULL, NULL, NULL), HT_STATUS_OK);
    assert_string_equal(ht_source_kind(one), "gguf");
    assert_string_equal(ht_source_name(one), "tiny");
    assert_true(ht_source_has_raw(one, ht_source_tensor_at(one, 1)));
    assert_same_source(hf, one);

    write_gguf(hf, "part-00001-of-00002.gguf", 0, 10, 0, 2);
    write_gguf(hf, "part-00002-of-00002.gguf", 10, 21, 1, 2);
    assert_int_equal(open_path(&split, temp_path(&folder, "part-00002-of-00002.gguf"), NULL, NULL, NULL), HT_STATUS_OK);
    assert_string_equal(ht_source_name(split), "part");
    assert_false(has_key(split, "split.count") || has_key(split, "split.no") || has_key(split, "split.tensors.count"));
    assert_same_source(hf, split);

    assert_int_equal(ht_source_sha256(hf, hash[0], NULL), HT_STATUS_OK);
    assert_int_equal(ht_source_sha256(one, hash[1], NULL), HT_STATUS_OK);
    assert_int_equal(ht_source_sha256(split, hash[2], NULL), HT_STATUS_OK);
    assert_string_not_equal(hash[0], hash[1]);
    assert_string_not_equal(hash[1], hash[2]);
    ht_source_close(hf), ht_source_close(one), ht_source_close(split);

    ht_error err = HT_ERROR_INIT;
    assert_int_equal(open_path(&one, temp_path(&folder, "absent.gguf"), NULL, NULL, &err), HT_STATUS_IO);
    assert_contains(err.file, "absent.gguf");
}

static void test_names_of_sources(void** state)
{
    (void)state;
    tiny_model* m    = tiny_create(TINY_LLAMA);
    ht_source*  s    = NULL;
    char        path[64];
    tiny_save(m, &folder, "My-Model.v1");
    const char* const ways[] = { "My-Model.v1", "My-Model.v1/", "My-Model.v1/model.safetensors", "My-Model.v1/../My-Model.v1/." };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        assert_int_equal(open_path(&s, temp_path(&folder, ways[i]), NULL, NULL, NULL), HT_STATUS_OK);
        assert_string_equal(ht_source_name(s), "My-Model.v1");
        ht_source_close(s);
    }
    snprintf(path, sizeof path, "My-Model.v1/other.safetensors");
    tiny_save_shard(m, &folder, "My-Model.v1", "other.safetensors", 0, m->n_tensors);
    assert_int_equal(open_path(&s, temp_path(&folder, path), NULL, NULL, NULL), HT_STATUS_OK);
    assert_string_equal(ht_source_name(s), "other");
    ht_source_close(s);
    tiny_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_keys_and_order),
        cmocka_unit_test(test_types_raw_bytes_and_values),
        cmocka_unit_test(test_every_float_dtype_of_a_weight),
        cmocka_unit_test(test_sizes_may_lie_in_text_config),
        cmocka_unit_test(test_15_empty_and_scalar_tensors_are_left_out),
        cmocka_unit_test(test_27_tensors_without_a_place_are_an_error),
        cmocka_unit_test(test_missing_tensors_are_named),
        cmocka_unit_test(test_unknown_families),
        cmocka_unit_test(test_24_rope_rows_with_grouped_heads),
        cmocka_unit_test(test_25_head_dim_of_its_own),
        cmocka_unit_test(test_26_vocabulary_tokenizer_and_rows),
        cmocka_unit_test(test_27_biases_and_families_that_do_not_permute),
        cmocka_unit_test(test_qwen3_norms_of_q_and_k),
        cmocka_unit_test(test_tied_heads),
        cmocka_unit_test(test_30_nan_and_inf_in_the_source),
        cmocka_unit_test(test_51_fp8_with_block_scales),
        cmocka_unit_test(test_51_fp8_ragged_edges_and_permuted_rows),
        cmocka_unit_test(test_51_fp8_faults),
        cmocka_unit_test(test_52_other_quantizers),
        cmocka_unit_test(test_54_llama3_frequency_factors),
        cmocka_unit_test(test_55_other_rope_kinds),
        cmocka_unit_test(test_57_sliding_windows),
        cmocka_unit_test(test_sampling_keys),
        cmocka_unit_test(test_gguf_files_as_sources),
        cmocka_unit_test(test_names_of_sources),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
