/*
 * TINY: a Hugging Face checkpoint of two layers, built in memory, changed by the test, and written into a temp_folder.
 *
 *   tiny_model* m = tiny_create(TINY_LLAMA);          hidden 256, ffn 512, 8 heads, 2 kv heads, head_dim 32, vocabulary 288
 *   tiny_set_number(m, "rope_theta", 5e5);            config.json is a cJSON tree: m->config
 *   tiny_fill(m, "model.norm.weight", f);             values by row and column
 *   tiny_save(m, &folder, "in");                      in/config.json, in/model.safetensors, in/tokenizer.json, in/tokenizer_config.json
 *
 * Values are seeded; every failure fails the test. The tokenizer is byte-level BPE: 256 byte symbols, 28 merges, 4 special tokens.
 */
#ifndef HT_TESTS_TINY_MODEL_H
#define HT_TESTS_TINY_MODEL_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "formats/base/half.h"
#include "tests/temp_folder.h"

enum { TINY_MAX_TENSORS = 96, TINY_VOCAB = 288, TINY_N_MERGES = 28 };

typedef struct tiny_tensor {
    char     name[96], dtype[16];
    int      n_dims;
    int64_t  shape[4];
    uint8_t* data;
    size_t   n_bytes;
} tiny_tensor;

typedef struct tiny_model {
    cJSON *     config, *tokenizer, *tokenizer_config;
    tiny_tensor tensors[TINY_MAX_TENSORS];
    int         n_tensors;
} tiny_model;

typedef enum tiny_family { TINY_LLAMA, TINY_QWEN2, TINY_QWEN3 } tiny_family;

/* --- tensors ------------------------------------------------------------------------------------------------------------------------ */

static inline tiny_tensor* tiny_find(tiny_model* m, const char* name)
{
    for (int i = 0; i < m->n_tensors; i++) {
        if (strcmp(m->tensors[i].name, name) == 0) { return &m->tensors[i]; }
    }
    fail_msg("TINY has no tensor %s", name);
    return NULL;
}

/* Append a tensor of zeros. */
static inline tiny_tensor* tiny_add(tiny_model* m, const char* name, const char* dtype, int n_bytes_each, int n_dims, const int64_t* shape)
{
    assert_true(m->n_tensors < TINY_MAX_TENSORS);
    tiny_tensor* t = &m->tensors[m->n_tensors++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    t->n_dims  = n_dims;
    t->n_bytes = (size_t)n_bytes_each;
    for (int i = 0; i < n_dims; i++) {
        t->shape[i] = shape[i];
        t->n_bytes *= (size_t)shape[i];
    }
    t->data = calloc(1, t->n_bytes + 1);
    assert_non_null(t->data);
    return t;
}

static inline void tiny_remove(tiny_model* m, const char* name)
{
    tiny_tensor* t = tiny_find(m, name);
    free(t->data);
    memmove(t, t + 1, (size_t)(&m->tensors[m->n_tensors] - (t + 1)) * sizeof *t);
    m->n_tensors--;
}

static inline void tiny_set_bf16(tiny_tensor* t, int64_t elem, float value)
{
    const uint16_t bits = ht_f32_to_bf16(value);
    memcpy(t->data + 2 * elem, &bits, 2);
}

/* Every value of a bf16 tensor from its row and column (a vector is one row). */
static inline void tiny_fill(tiny_model* m, const char* name, float (*value)(int64_t row, int64_t col))
{
    tiny_tensor*  t      = tiny_find(m, name);
    const int64_t n_cols = t->shape[t->n_dims - 1], n_rows = (int64_t)t->n_bytes / 2 / n_cols;
    for (int64_t r = 0; r < n_rows; r++) {
        for (int64_t c = 0; c < n_cols; c++) { tiny_set_bf16(t, r * n_cols + c, value(r, c)); }
    }
}

/* A bf16 tensor of [rows, cols] (cols 0: a vector): ones for norms, uniform in -0.035 … 0.035 otherwise, seeded by its name. */
static inline void tiny_add_weight(tiny_model* m, const char* name, int64_t rows, int64_t cols)
{
    const int64_t shape[2] = { rows, cols };
    tiny_tensor*  t        = tiny_add(m, name, "BF16", 2, cols ? 2 : 1, shape);
    uint64_t      seed     = 1;
    for (const char* c = name; *c; c++) { seed = seed * 131 + (uint8_t)*c; }
    const bool is_norm = strstr(name, "norm") != NULL;
    for (int64_t i = 0; i < rows * (cols ? cols : 1); i++) {
        tiny_set_bf16(t, i, is_norm ? 1.0f : 0.035f * ((float)(ht_test_random(&seed) >> 40) * 0x1p-23f - 1.0f));
    }
}

/* --- configuration ------------------------------------------------------------------------------------------------------------------ */

/* Replace or add a member. `value` is taken over. */
static inline void tiny_set(tiny_model* m, const char* key, cJSON* value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(m->config, key);
    assert_true(cJSON_AddItemToObject(m->config, key, value));
}

static inline void tiny_set_number(tiny_model* m, const char* key, double value) { tiny_set(m, key, cJSON_CreateNumber(value)); }
static inline void tiny_set_bool(tiny_model* m, const char* key, int value) { tiny_set(m, key, cJSON_CreateBool(value)); }
static inline void tiny_set_json(tiny_model* m, const char* key, const char* json)
{
    cJSON* value = cJSON_Parse(json);
    assert_non_null(value);
    tiny_set(m, key, value);
}

static inline int64_t tiny_number(const tiny_model* m, const char* key)
{
    return (int64_t)cJSON_GetObjectItemCaseSensitive(m->config, key)->valuedouble;
}

/* Rebuild all weights from the configuration: after a change of sizes. */
static inline void tiny_rebuild(tiny_model* m, tiny_family family)
{
    const int64_t h = tiny_number(m, "hidden_size"), f = tiny_number(m, "intermediate_size"), d = tiny_number(m, "head_dim"),
                  q = d * tiny_number(m, "num_attention_heads"), kv = d * tiny_number(m, "num_key_value_heads"), v = tiny_number(m, "vocab_size");
    const struct { const char* name; int64_t rows, cols; int families; } rows[] = {
        { "input_layernorm.weight", h, 0, 7 },  { "post_attention_layernorm.weight", h, 0, 7 },
        { "self_attn.q_proj.weight", q, h, 7 }, { "self_attn.k_proj.weight", kv, h, 7 },
        { "self_attn.v_proj.weight", kv, h, 7 }, { "self_attn.o_proj.weight", h, q, 7 },
        { "mlp.gate_proj.weight", f, h, 7 },    { "mlp.up_proj.weight", f, h, 7 },
        { "mlp.down_proj.weight", h, f, 7 },    { "self_attn.q_proj.bias", q, 0, 1 << TINY_QWEN2 },
        { "self_attn.k_proj.bias", kv, 0, 1 << TINY_QWEN2 }, { "self_attn.v_proj.bias", kv, 0, 1 << TINY_QWEN2 },
        { "self_attn.q_norm.weight", d, 0, 1 << TINY_QWEN3 }, { "self_attn.k_norm.weight", d, 0, 1 << TINY_QWEN3 },
    };
    while (m->n_tensors > 0) { free(m->tensors[--m->n_tensors].data); }
    tiny_add_weight(m, "model.embed_tokens.weight", v, h);
    tiny_add_weight(m, "model.norm.weight", h, 0);
    tiny_add_weight(m, "lm_head.weight", v, h);
    for (int64_t layer = 0; layer < tiny_number(m, "num_hidden_layers"); layer++) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            char name[96];
            if (!(rows[i].families >> family & 1)) { continue; }
            snprintf(name, sizeof name, "model.layers.%d.%s", (int)layer, rows[i].name);
            tiny_add_weight(m, name, rows[i].rows, rows[i].cols);
        }
    }
}

/* --- tokenizer ---------------------------------------------------------------------------------------------------------------------- */

/* The printable stand-in of a byte in byte-level BPE, as UTF-8: itself when printable Latin-1, else U+0100 and up in order. */
static inline void tiny_byte_symbol(int byte, char out[3])
{
    int code = 0, n_shifted = 0;
    for (int b = 0; b <= byte; b++) {
        const int printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        code = printable ? b : 256 + n_shifted++;
    }
    if (code < 128) { out[0] = (char)code, out[1] = '\0'; }
    else { out[0] = (char)(0xC0 | code >> 6), out[1] = (char)(0x80 | (code & 63)), out[2] = '\0'; }
}

/* 28 merges, each of two tokens that exist by then. \xC4\xA0 is the stand-in of a space. */
static const char* const tiny_merges[TINY_N_MERGES][2] = {
    { "t", "h" },  { "th", "e" }, { "i", "n" }, { "a", "n" }, { "e", "r" }, { "o", "n" },  { "r", "e" },          { "a", "t" },
    { "e", "n" },  { "n", "d" },  { "o", "r" }, { "e", "s" }, { "i", "s" }, { "a", "r" },  { "i", "t" },          { "o", "u" },
    { "n", "g" },  { "l", "l" },  { "s", "t" }, { "a", "l" }, { "e", "d" }, { "an", "d" }, { "\xC4\xA0", "the" }, { "\xC4\xA0", "a" },
    { "\xC4\xA0", "w" }, { "o", "m" }, { "h", "e" }, { "l", "e" },
};

static inline void tiny_make_tokenizer(tiny_model* m)
{
    static const char* const specials[] = { "<s>", "</s>", "<unk>", "<pad>" };
    cJSON *vocab = cJSON_CreateObject(), *merges = cJSON_CreateArray(), *added = cJSON_CreateArray(), *decoder = cJSON_CreateObject();
    char   text[32];
    for (int b = 0; b < 256; b++) {
        tiny_byte_symbol(b, text);
        cJSON_AddNumberToObject(vocab, text, b);
    }
    for (int i = 0; i < TINY_N_MERGES; i++) {
        const char *a = tiny_merges[i][0], *b = tiny_merges[i][1];
        snprintf(text, sizeof text, "%s%s", a, b);
        cJSON_AddNumberToObject(vocab, text, 256 + i);
        snprintf(text, sizeof text, "%s %s", a, b);
        cJSON_AddItemToArray(merges, cJSON_CreateString(text));
    }
    for (int i = 0; i < 4; i++) {
        cJSON* token = cJSON_CreateObject();
        cJSON_AddNumberToObject(token, "id", 284 + i);
        cJSON_AddStringToObject(token, "content", specials[i]);
        cJSON_AddBoolToObject(token, "special", 1);
        cJSON_AddBoolToObject(token, "normalized", 0);
        cJSON_AddItemToArray(added, token);
        cJSON* entry = cJSON_Duplicate(token, 1);
        cJSON_DeleteItemFromObjectCaseSensitive(entry, "id");
        snprintf(text, sizeof text, "%d", 284 + i);
        cJSON_AddItemToObject(decoder, text, entry);
    }
    m->tokenizer = cJSON_Parse("{\"version\":\"1.0\",\"normalizer\":null,\"post_processor\":null,"
                               "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},"
                               "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}]},"
                               "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}}");
    cJSON* model = cJSON_AddObjectToObject(m->tokenizer, "model");
    cJSON_AddStringToObject(model, "type", "BPE");
    cJSON_AddBoolToObject(model, "byte_fallback", 0);
    cJSON_AddItemToObject(model, "vocab", vocab);
    cJSON_AddItemToObject(model, "merges", merges);
    cJSON_AddItemToObject(m->tokenizer, "added_tokens", added);
    m->tokenizer_config = cJSON_Parse("{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"unk_token\":\"<unk>\",\"pad_token\":\"<pad>\","
                                      "\"add_bos_token\":false,\"tokenizer_class\":\"PreTrainedTokenizerFast\"}");
    cJSON_AddItemToObject(m->tokenizer_config, "added_tokens_decoder", decoder);
}

/* --- the model ---------------------------------------------------------------------------------------------------------------------- */

static inline tiny_model* tiny_create(tiny_family family)
{
    static const char* const names[][2] = { { "llama", "LlamaForCausalLM" }, { "qwen2", "Qwen2ForCausalLM" }, { "qwen3", "Qwen3ForCausalLM" } };
    tiny_model* m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->config = cJSON_Parse("{\"hidden_size\":256,\"intermediate_size\":512,\"num_hidden_layers\":2,\"num_attention_heads\":8,"
                            "\"num_key_value_heads\":2,\"head_dim\":32,\"vocab_size\":288,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,"
                            "\"max_position_embeddings\":512,\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\",\"bos_token_id\":284,"
                            "\"eos_token_id\":285}");
    cJSON_AddStringToObject(m->config, "model_type", names[family][0]);
    const char* class_name = names[family][1];
    cJSON_AddItemToObject(m->config, "architectures", cJSON_CreateStringArray(&class_name, 1));
    tiny_make_tokenizer(m);
    tiny_rebuild(m, family);
    return m;
}

static inline void tiny_free(tiny_model* m)
{
    if (!m) { return; }
    for (int i = 0; i < m->n_tensors; i++) { free(m->tensors[i].data); }
    cJSON_Delete(m->config);
    cJSON_Delete(m->tokenizer);
    cJSON_Delete(m->tokenizer_config);
    free(m);
}

static inline void tiny_save_json(const temp_folder* to, const char* folder, const char* name, const cJSON* json)
{
    char  path[128];
    char* text = cJSON_PrintUnformatted(json);
    assert_non_null(text);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    temp_write_text(to, path, text);
    cJSON_free(text);
}

/* Tensors [first, first + n) as one .safetensors file. */
static inline void tiny_save_shard(const tiny_model* m, const temp_folder* to, const char* folder, const char* name, int first, int n)
{
    char   path[128];
    size_t n_data = 0, offset = 0;
    cJSON* header = cJSON_CreateObject();
    for (int i = first; i < first + n; i++) { n_data += m->tensors[i].n_bytes; }
    uint8_t* data = malloc(n_data + 1);
    assert_non_null(data);
    for (int i = first; i < first + n; i++) {
        const tiny_tensor* t     = &m->tensors[i];
        cJSON*             entry = cJSON_AddObjectToObject(header, t->name);
        cJSON*             shape = cJSON_CreateArray();
        const double       range[2] = { (double)offset, (double)(offset + t->n_bytes) };
        for (int k = 0; k < t->n_dims; k++) { cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)t->shape[k])); }
        cJSON_AddStringToObject(entry, "dtype", t->dtype);
        cJSON_AddItemToObject(entry, "shape", shape);
        cJSON_AddItemToObject(entry, "data_offsets", cJSON_CreateDoubleArray(range, 2));
        memcpy(data + offset, t->data, t->n_bytes);
        offset += t->n_bytes;
    }
    char* text = cJSON_PrintUnformatted(header);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    temp_write_safetensors(to, path, text, strlen(text), data, n_data);
    cJSON_free(text);
    cJSON_Delete(header);
    free(data);
}

static inline void tiny_make_folder(const temp_folder* to, const char* folder) { assert_int_equal(mkdir(temp_path(to, folder), 0777), 0); }

/* config.json and the tokenizer files. */
static inline void tiny_save_json_files(const tiny_model* m, const temp_folder* to, const char* folder)
{
    tiny_save_json(to, folder, "config.json", m->config);
    tiny_save_json(to, folder, "tokenizer.json", m->tokenizer);
    tiny_save_json(to, folder, "tokenizer_config.json", m->tokenizer_config);
}

/* The whole model in one file, into a new folder. */
static inline void tiny_save(const tiny_model* m, const temp_folder* to, const char* folder)
{
    tiny_make_folder(to, folder);
    tiny_save_json_files(m, to, folder);
    tiny_save_shard(m, to, folder, "model.safetensors", 0, m->n_tensors);
}

/* The whole model in `n_shards` files model-0000i-of-0000n.safetensors, into a new folder, with an index. */
static inline void tiny_save_sharded(const tiny_model* m, const temp_folder* to, const char* folder, int n_shards)
{
    cJSON* index = cJSON_CreateObject();
    cJSON* map   = cJSON_AddObjectToObject(index, "weight_map");
    tiny_make_folder(to, folder);
    tiny_save_json_files(m, to, folder);
    for (int s = 0; s < n_shards; s++) {
        const int first = m->n_tensors * s / n_shards, end = m->n_tensors * (s + 1) / n_shards;
        char      name[64];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", s + 1, n_shards);
        tiny_save_shard(m, to, folder, name, first, end - first);
        for (int i = first; i < end; i++) { cJSON_AddStringToObject(map, m->tensors[i].name, name); }
    }
    tiny_save_json(to, folder, "model.safetensors.index.json", index);
    cJSON_Delete(index);
}

#endif
