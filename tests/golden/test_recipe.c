/*
 * Recipes against the bytes that llama-quantize gives real models (tensor data, no statistics). Expected figures: our study of published files
 * and of llama.cpp's rules, 2026-07; the 24 published bits/weight figures of Llama-3.1-8B agree with it to four decimals.
 */
#include "tests/ht_test.h"

#include "quant/recipe.h"

typedef struct shape {
    const char* name;
    const char* arch;
    int64_t     n_embd, n_layers, n_heads, n_heads_kv, head_dim, n_ff, n_vocab, n_experts;
    bool        is_tied, has_qkv_bias, has_qk_norm, has_rope_freqs;
} shape;

static const shape shapes[] = {
    { "Llama-3.1-8B", "llama", 4096, 32, 32, 8, 128, 14336, 128256, 0, false, false, false, true },
    { "Llama-3.3-70B", "llama", 8192, 80, 64, 8, 128, 28672, 128256, 0, false, false, false, true },
    { "Mixtral-8x7B", "llama", 4096, 32, 32, 8, 128, 14336, 32000, 8, false, false, false, false },
    { "Qwen2.5-7B", "qwen2", 3584, 28, 28, 4, 128, 18944, 152064, 0, false, true, false, false },
    { "Qwen3-8B", "qwen3", 4096, 36, 32, 8, 128, 12288, 151936, 0, false, false, true, false },
    { "Qwen3-30B-A3B", "qwen3moe", 2048, 48, 32, 4, 128, 768, 151936, 128, false, false, true, false },
    { "SmolLM2-135M", "llama", 576, 30, 9, 3, 64, 1536, 49152, 0, true, false, false, false },
};

static const struct { const char* model; const char* recipe; int64_t n_bytes; } expected[] = {
    { "Llama-3.1-8B", "F16", 16061055232 }, { "Llama-3.1-8B", "Q8_0", 8532934912 }, { "Llama-3.1-8B", "Q6_K", 6588170496 },
    { "Llama-3.1-8B", "Q5_K_M", 5725151488 }, { "Llama-3.1-8B", "Q5_K_S", 5591458048 }, { "Llama-3.1-8B", "Q4_K_M", 4912898304 },
    { "Llama-3.1-8B", "Q4_K_S", 4684833024 }, { "Llama-3.1-8B", "Q4_0", 4653375744 }, { "Llama-3.1-8B", "Q3_K_L", 4314120448 },
    { "Llama-3.1-8B", "Q3_K_M", 4011081984 }, { "Llama-3.1-8B", "Q3_K_S", 3656663296 }, { "Llama-3.1-8B", "Q2_K", 3171295488 },
    { "Llama-3.1-8B", "IQ4_XS", 4476526848 }, { "Llama-3.1-8B", "IQ4_NL", 4699513088 },
    { "Llama-3.3-70B", "F16", 141110051072 }, { "Llama-3.3-70B", "Q8_0", 74967187712 }, { "Llama-3.3-70B", "Q6_K", 57880281344 },
    { "Llama-3.3-70B", "Q5_K_M", 49941954816 }, { "Llama-3.3-70B", "Q5_K_S", 48649584896 }, { "Llama-3.3-70B", "Q4_K_M", 42512531712 },
    { "Llama-3.3-70B", "Q4_K_S", 40339357952 }, { "Llama-3.3-70B", "Q4_0", 39961870592 }, { "Llama-3.3-70B", "Q3_K_L", 37132730624 },
    { "Llama-3.3-70B", "Q3_K_M", 34259632384 }, { "Llama-3.3-70B", "Q3_K_S", 30904189184 }, { "Llama-3.3-70B", "Q2_K", 26367246592 },
    { "Llama-3.3-70B", "IQ4_XS", 38261801216 }, { "Llama-3.3-70B", "IQ4_NL", 40339357952 },
    { "Mixtral-8x7B", "F16", 93408215040 }, { "Mixtral-8x7B", "Q8_0", 49625579520 }, { "Mixtral-8x7B", "Q6_K", 38380077056 },
    { "Mixtral-8x7B", "Q5_K_M", 33228840960 }, { "Mixtral-8x7B", "Q5_K_S", 32230596608 }, { "Mixtral-8x7B", "Q4_K_M", 28447727616 },
    { "Mixtral-8x7B", "Q4_K_S", 26744840192 }, { "Mixtral-8x7B", "Q4_0", 26442850304 }, { "Mixtral-8x7B", "Q3_K_L", 24168906752 },
    { "Mixtral-8x7B", "Q3_K_M", 22545711104 }, { "Mixtral-8x7B", "Q3_K_S", 20431781888 }, { "Mixtral-8x7B", "Q2_K", 17310490624 },
    { "Mixtral-8x7B", "IQ4_XS", 25373401088 }, { "Mixtral-8x7B", "IQ4_NL", 26744840192 },
    { "Qwen2.5-7B", "F16", 15231899648 }, { "Qwen2.5-7B", "Q8_0", 8092571648 }, { "Qwen2.5-7B", "Q6_K", 6248245248 },
    { "Qwen2.5-7B", "Q5_K_M", 5438877696 }, { "Qwen2.5-7B", "Q5_K_S", 5309222912 }, { "Qwen2.5-7B", "Q4_K_M", 4677120000 },
    { "Qwen2.5-7B", "Q4_K_S", 4451815424 }, { "Qwen2.5-7B", "Q4_0", 4425437184 }, { "Qwen2.5-7B", "Q3_K_L", 4082505728 },
    { "Qwen2.5-7B", "Q3_K_M", 3802437632 }, { "Qwen2.5-7B", "Q3_K_S", 3486414848 }, { "Qwen2.5-7B", "Q2_K", 3009986560 },
    { "Qwen2.5-7B", "IQ4_XS", 4244344832 }, { "Qwen2.5-7B", "IQ4_NL", 4457320448 },
    { "Qwen3-8B", "F16", 16382087168 }, { "Qwen3-8B", "Q8_0", 8703561728 }, { "Qwen3-8B", "Q6_K", 6719942656 },
    { "Qwen3-8B", "Q5_K_M", 5845155840 }, { "Qwen3-8B", "Q5_K_S", 5714804736 }, { "Qwen3-8B", "Q4_K_M", 5021827072 },
    { "Qwen3-8B", "Q4_K_S", 4796055552 }, { "Qwen3-8B", "Q4_0", 4768792576 }, { "Qwen3-8B", "Q3_K_L", 4425437184 },
    { "Qwen3-8B", "Q3_K_M", 4118204416 }, { "Qwen3-8B", "Q3_K_S", 3763654656 }, { "Qwen3-8B", "Q2_K", 3275776000 },
    { "Qwen3-8B", "IQ4_XS", 4587339776 }, { "Qwen3-8B", "IQ4_NL", 4812832768 },
    { "Qwen3-30B-A3B", "F16", 61089832960 }, { "Qwen3-30B-A3B", "Q8_0", 32477962240 }, { "Qwen3-30B-A3B", "Q6_K", 25086562304 },
    { "Qwen3-30B-A3B", "Q5_K_M", 21719611392 }, { "Qwen3-30B-A3B", "Q5_K_S", 21074540544 }, { "Qwen3-30B-A3B", "Q4_K_M", 18550716416 },
    { "Qwen3-30B-A3B", "Q4_K_S", 17450039296 }, { "Qwen3-30B-A3B", "Q4_0", 17298520064 }, { "Qwen3-30B-A3B", "Q3_K_L", 15894700032 },
    { "Qwen3-30B-A3B", "Q3_K_M", 14705876992 }, { "Qwen3-30B-A3B", "Q3_K_S", 13286498304 }, { "Qwen3-30B-A3B", "Q2_K", 11252639744 },
    { "Qwen3-30B-A3B", "IQ4_XS", 16551122944 }, { "Qwen3-30B-A3B", "IQ4_NL", 17455806464 },
    { "SmolLM2-135M", "F16", 269100288 }, { "SmolLM2-135M", "Q8_0", 143025408 }, { "SmolLM2-135M", "Q6_K", 136597248 },
    { "SmolLM2-135M", "Q5_K_M", 110317824 }, { "SmolLM2-135M", "Q5_K_S", 108188928 }, { "SmolLM2-135M", "Q4_K_M", 103668480 },
    { "SmolLM2-135M", "Q4_K_S", 100253952 }, { "SmolLM2-135M", "Q4_0", 89941248 }, { "SmolLM2-135M", "Q3_K_L", 95747328 },
    { "SmolLM2-135M", "Q3_K_M", 91724544 }, { "SmolLM2-135M", "Q3_K_S", 86416128 }, { "SmolLM2-135M", "Q2_K", 86416128 },
    { "SmolLM2-135M", "IQ4_XS", 89526528 }, { "SmolLM2-135M", "IQ4_NL", 90273024 },
};

typedef struct tensor_list {
    ht_tensor_info* tensors;
    int64_t         n;
} tensor_list;

/* Layer -1: no "blk." prefix. A dimension of 0 is absent. */
static void add(tensor_list* list, int64_t layer, const char* part, int64_t ne0, int64_t ne1, int64_t ne2)
{
    ht_tensor_info* t = &list->tensors[list->n++];
    *t = (ht_tensor_info){ .type = ne1 > 0 ? HT_TYPE_bf16 : HT_TYPE_f32, .n_dims = ne2 > 0 ? 3 : ne1 > 0 ? 2 : 1,
                           .ne = { ne0, ne1 > 0 ? ne1 : 1, ne2 > 0 ? ne2 : 1, 1 } };
    if (layer < 0) { snprintf(t->name, sizeof t->name, "%s", part); }
    else { snprintf(t->name, sizeof t->name, "blk.%d.%s", (int)layer, part); }
}

static tensor_list tensors_of(const shape* s)
{
    tensor_list   list = { calloc((size_t)s->n_layers * 16 + 8, sizeof(ht_tensor_info)), 0 };
    const int64_t n_q = s->n_heads * s->head_dim, n_kv = s->n_heads_kv * s->head_dim;
    const bool    is_moe = s->n_experts > 0;
    assert_non_null(list.tensors);
    add(&list, -1, "token_embd.weight", s->n_embd, s->n_vocab, 0);
    for (int64_t l = 0; l < s->n_layers; l++) {
        add(&list, l, "attn_norm.weight", s->n_embd, 0, 0);
        add(&list, l, "attn_q.weight", s->n_embd, n_q, 0);
        add(&list, l, "attn_k.weight", s->n_embd, n_kv, 0);
        add(&list, l, "attn_v.weight", s->n_embd, n_kv, 0);
        add(&list, l, "attn_output.weight", n_q, s->n_embd, 0);
        add(&list, l, "ffn_norm.weight", s->n_embd, 0, 0);
        if (s->has_qkv_bias) {
            add(&list, l, "attn_q.bias", n_q, 0, 0);
            add(&list, l, "attn_k.bias", n_kv, 0, 0);
            add(&list, l, "attn_v.bias", n_kv, 0, 0);
        }
        if (s->has_qk_norm) {
            add(&list, l, "attn_q_norm.weight", s->head_dim, 0, 0);
            add(&list, l, "attn_k_norm.weight", s->head_dim, 0, 0);
        }
        if (is_moe) {
            add(&list, l, "ffn_gate_inp.weight", s->n_embd, s->n_experts, 0);
            list.tensors[list.n - 1].type = HT_TYPE_f32;
        }
        add(&list, l, is_moe ? "ffn_gate_exps.weight" : "ffn_gate.weight", s->n_embd, s->n_ff, s->n_experts);
        add(&list, l, is_moe ? "ffn_up_exps.weight" : "ffn_up.weight", s->n_embd, s->n_ff, s->n_experts);
        add(&list, l, is_moe ? "ffn_down_exps.weight" : "ffn_down.weight", s->n_ff, s->n_embd, s->n_experts);
    }
    add(&list, -1, "output_norm.weight", s->n_embd, 0, 0);
    if (!s->is_tied) { add(&list, -1, "output.weight", s->n_embd, s->n_vocab, 0); }
    if (s->has_rope_freqs) { add(&list, -1, "rope_freqs.weight", s->head_dim / 2, 0, 0); }
    return list;
}

static const shape* shape_named(const char* name)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(shapes[i].name, name) == 0) { return &shapes[i]; }
    }
    return NULL;
}

/* The types of all tensors, calloc'd. */
static ht_type* assign(const shape* s, const char* recipe, const tensor_list* list)
{
    const ht_recipe_model model = { s->arch, s->n_layers, s->n_heads, s->n_heads_kv, s->n_experts, s->is_tied, false };
    ht_type*              types = calloc((size_t)list->n, sizeof *types);
    assert_non_null(ht_recipe_find(recipe));
    assert_int_equal(ht_recipe_assign(ht_recipe_find(recipe), &model, list->tensors, list->n, types, NULL), HT_STATUS_OK);
    return types;
}

static void test_recipes_give_the_published_bytes(void** state)
{
    (void)state;
    for (size_t e = 0; e < sizeof expected / sizeof *expected; e++) {
        const shape* s     = shape_named(expected[e].model);
        tensor_list  list  = tensors_of(s);
        ht_type*     types = assign(s, expected[e].recipe, &list);
        int64_t      total = 0;
        for (int64_t i = 0; i < list.n; i++) {
            const ht_tensor_info* t    = &list.tensors[i];
            const ht_type_info*   info = ht_type_get(ht_type_for_row(types[i], t->ne[0]));
            total += t->ne[0] / info->block_elems * info->block_bytes * t->ne[1] * t->ne[2];
        }
        if (total != expected[e].n_bytes) { print_error("%s %s\n", expected[e].model, expected[e].recipe); }
        assert_int_equal(total, expected[e].n_bytes);
        free(types);
        free(list.tensors);
    }
}

static void test_order_of_tensors_does_not_matter(void** state)
{
    (void)state;
    const shape* s    = shape_named("Llama-3.1-8B");
    tensor_list  list = tensors_of(s);
    ht_type*     a    = assign(s, "Q4_K_M", &list);
    for (int64_t i = 0; i < list.n / 2; i++) {
        const ht_tensor_info swapped = list.tensors[i];
        list.tensors[i]              = list.tensors[list.n - 1 - i];
        list.tensors[list.n - 1 - i] = swapped;
    }
    ht_type* b = assign(s, "Q4_K_M", &list);
    for (int64_t i = 0; i < list.n; i++) { assert_int_equal(a[i], b[list.n - 1 - i]); }
    free(a);
    free(b);
    free(list.tensors);
}

static void test_names(void** state)
{
    (void)state;
    char near[128];
    assert_ptr_equal(ht_recipe_find("q4_k"), ht_recipe_find("Q4_K_M"));
    assert_null(ht_recipe_find("Q5_K_X"));
    assert_non_null(strstr(ht_recipe_suggest("Q5_K_X", near, sizeof near), "Q5_K_M"));
    assert_int_equal(ht_type_for_row(HT_TYPE_q6_k, 576), HT_TYPE_q8_0);
    assert_int_equal(ht_type_for_row(HT_TYPE_q6_k, 100), HT_TYPE_f16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recipes_give_the_published_bytes),
        cmocka_unit_test(test_order_of_tensors_does_not_matter),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
