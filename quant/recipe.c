#include "quant/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Tensor classes, by the first substring that matches. */
typedef enum tensor_class {
    CLASS_OUTPUT, CLASS_EMBD, CLASS_V, CLASS_K, CLASS_Q, CLASS_O, CLASS_UP, CLASS_GATE, CLASS_DOWN, CLASS_OTHER, N_CLASSES
} tensor_class;

static const struct { const char* part; tensor_class kind; } class_names[] = {
    { "output.weight", CLASS_OUTPUT },   { "token_embd.weight", CLASS_EMBD }, { "attn_qkv.weight", CLASS_V },
    { "attn_kv_b.weight", CLASS_V },     { "attn_v.weight", CLASS_V },        { "attn_k.weight", CLASS_K },
    { "attn_q.weight", CLASS_Q },        { "attn_output.weight", CLASS_O },   { "ffn_up", CLASS_UP },
    { "ffn_gate", CLASS_GATE },          { "ffn_down", CLASS_DOWN },
};

/* When a rule applies. i: index of the tensor among its class; n: how many layers (V: tensors of the class); gqa: heads per kv head. */
typedef enum condition {
    ALWAYS,
    FIRST_2,                  /* i < 2                                                                     */
    FIRST_4,                  /* i < 4                                                                     */
    FIRST_16TH,               /* i < n/16                                                                  */
    FIRST_8TH,                /* i < n/8                                                                   */
    FIRST_8TH_IMPORTANCE,     /* i < n/8, statistics at hand                                               */
    FIRST_8TH_NO_IMPORTANCE,  /* i < n/8, none                                                             */
    MIDDLE,                   /* n/8 <= i < 7n/8                                                           */
    MORE,                     /* first and last eighth and every third between: llama.cpp's use_more_bits  */
    NO_IMPORTANCE,
    GQA_4,                    /* gqa >= 4                                                                  */
    GQA_4_OR_EXPERTS_4,       /* gqa >= 4 or at least 4 experts                                            */
    EXPERTS_8,                /* exactly 8 experts, as literally there                                     */
    EXPERTS_8_MORE
} condition;

typedef struct rule {
    tensor_class kind;
    condition    when;
    ht_type      type;
} rule;

enum {
    MAX_RULES    = 10,
    LOW_BIT      = 1, /* the IQ1/IQ2 group: exempt from the closing rules                 */
    EXPERTS_ONLY = 2  /* the type is for stacked experts, everything else becomes Q8_0    */
};

struct ht_recipe {
    const char* name;
    uint32_t    file_type;    /* general.file_type number                                     */
    ht_type     type;         /* for everything that no rule names                            */
    unsigned    flags;
    rule        rules[MAX_RULES]; /* the first that matches wins; ends with type F32 of class OUTPUT: a zero row */
};

#define T(stem) HT_TYPE_##stem

static const ht_recipe recipes[] = {
    { "F32", 0, T(f32), 0, { { 0 } } },
    { "F16", 1, T(f16), 0, { { 0 } } },
    { "BF16", 32, T(bf16), 0, { { 0 } } },
    { "Q4_0", 2, T(q4_0), 0, { { CLASS_DOWN, FIRST_8TH_IMPORTANCE, T(q4_1) } } },
    { "Q4_1", 3, T(q4_1), 0, { { 0 } } },
    { "Q5_0", 8, T(q5_0), 0, { { CLASS_DOWN, FIRST_8TH_IMPORTANCE, T(q5_1) } } },
    { "Q5_1", 9, T(q5_1), 0, { { 0 } } },
    { "Q8_0", 7, T(q8_0), 0, { { 0 } } },
    { "Q2_K", 10, T(q2_k), 0,
      { { CLASS_V, GQA_4, T(q4_k) }, { CLASS_V, ALWAYS, T(q3_k) }, { CLASS_DOWN, ALWAYS, T(q3_k) }, { CLASS_O, EXPERTS_8, T(q5_k) },
        { CLASS_O, ALWAYS, T(q3_k) } } },
    { "Q2_K_S", 21, T(q2_k), 0, { { CLASS_V, GQA_4, T(q4_k) }, { CLASS_DOWN, FIRST_8TH, T(q4_k) } } },
    { "Q3_K_S", 11, T(q3_k), 0, { { CLASS_O, EXPERTS_8, T(q5_k) } } },
    { "Q3_K_M", 12, T(q3_k), 0,
      { { CLASS_V, FIRST_2, T(q5_k) }, { CLASS_V, ALWAYS, T(q4_k) }, { CLASS_DOWN, FIRST_16TH, T(q5_k) }, { CLASS_DOWN, ALWAYS, T(q4_k) },
        { CLASS_O, EXPERTS_8, T(q5_k) }, { CLASS_O, ALWAYS, T(q4_k) } } },
    { "Q3_K_L", 13, T(q3_k), 0, { { CLASS_V, ALWAYS, T(q5_k) }, { CLASS_DOWN, ALWAYS, T(q5_k) }, { CLASS_O, EXPERTS_8, T(q3_k) }, { CLASS_O, ALWAYS, T(q5_k) } } },
    { "Q4_K_S", 14, T(q4_k), 0, { { CLASS_V, FIRST_4, T(q5_k) }, { CLASS_DOWN, FIRST_8TH, T(q5_k) }, { CLASS_O, EXPERTS_8, T(q5_k) } } },
    { "Q4_K_M", 15, T(q4_k), 0, { { CLASS_V, MORE, T(q6_k) }, { CLASS_DOWN, MORE, T(q6_k) }, { CLASS_O, EXPERTS_8, T(q5_k) } } },
    { "Q5_K_S", 16, T(q5_k), 0, { { 0 } } },
    { "Q5_K_M", 17, T(q5_k), 0, { { CLASS_V, MORE, T(q6_k) }, { CLASS_DOWN, MORE, T(q6_k) } } },
    { "Q6_K", 18, T(q6_k), 0, { { 0 } } },
    { "IQ4_NL", 25, T(iq4_nl), 0,
      { { CLASS_V, GQA_4, T(q5_k) }, { CLASS_DOWN, FIRST_8TH_NO_IMPORTANCE, T(q5_k) }, { CLASS_O, EXPERTS_8, T(q5_k) } } },
    { "IQ4_XS", 30, T(iq4_xs), 0,
      { { CLASS_V, GQA_4, T(q5_k) }, { CLASS_DOWN, FIRST_8TH_NO_IMPORTANCE, T(q5_k) }, { CLASS_O, EXPERTS_8, T(q5_k) } } },
    { "MXFP4", 38, T(mxfp4), 0, { { 0 } } },
    { "MXFP4_MOE", 38, T(mxfp4), EXPERTS_ONLY, { { 0 } } },
    { "IQ3_XXS", 23, T(iq3_xxs), 0,
      { { CLASS_V, GQA_4, T(q4_k) }, { CLASS_V, NO_IMPORTANCE, T(iq3_s) }, { CLASS_K, ALWAYS, T(iq2_s) }, { CLASS_Q, ALWAYS, T(iq2_s) },
        { CLASS_DOWN, FIRST_8TH_NO_IMPORTANCE, T(q4_k) }, { CLASS_DOWN, NO_IMPORTANCE, T(q3_k) }, { CLASS_O, EXPERTS_8, T(q5_k) },
        { CLASS_O, ALWAYS, T(iq3_s) }, { CLASS_EMBD, ALWAYS, T(iq3_s) } } },
    { "IQ3_XS", 22, T(iq3_s), 0,
      { { CLASS_V, GQA_4, T(q4_k) }, { CLASS_K, ALWAYS, T(iq3_xxs) }, { CLASS_Q, ALWAYS, T(iq3_xxs) }, { CLASS_GATE, MIDDLE, T(iq3_xxs) },
        { CLASS_UP, MIDDLE, T(iq3_xxs) }, { CLASS_O, EXPERTS_8, T(q5_k) } } },
    { "IQ3_S", 26, T(iq3_s), 0, { { CLASS_V, GQA_4, T(q4_k) }, { CLASS_O, EXPERTS_8, T(q5_k) } } },
    { "IQ3_M", 27, T(iq3_s), 0,
      { { CLASS_V, ALWAYS, T(q4_k) }, { CLASS_DOWN, FIRST_8TH, T(q4_k) }, { CLASS_DOWN, EXPERTS_8_MORE, T(q4_k) },
        { CLASS_O, EXPERTS_8, T(q5_k) }, { CLASS_O, ALWAYS, T(q4_k) } } },
    { "IQ2_XXS", 19, T(iq2_xxs), LOW_BIT,
      { { CLASS_V, GQA_4_OR_EXPERTS_4, T(q4_k) }, { CLASS_V, ALWAYS, T(q2_k) }, { CLASS_K, EXPERTS_8, T(q4_k) },
        { CLASS_DOWN, FIRST_8TH, T(q2_k) }, { CLASS_O, EXPERTS_8, T(q5_k) }, { CLASS_EMBD, ALWAYS, T(q2_k) } } },
    { "IQ2_XS", 20, T(iq2_xs), LOW_BIT,
      { { CLASS_V, GQA_4_OR_EXPERTS_4, T(q4_k) }, { CLASS_V, ALWAYS, T(q2_k) }, { CLASS_K, EXPERTS_8, T(q4_k) },
        { CLASS_DOWN, FIRST_8TH, T(q2_k) }, { CLASS_O, EXPERTS_8, T(q5_k) }, { CLASS_EMBD, ALWAYS, T(q2_k) } } },
    { "IQ2_S", 28, T(iq2_xs), LOW_BIT,
      { { CLASS_V, GQA_4_OR_EXPERTS_4, T(q4_k) }, { CLASS_V, ALWAYS, T(iq3_s) }, { CLASS_K, EXPERTS_8, T(q4_k) },
        { CLASS_DOWN, FIRST_8TH, T(iq3_s) }, { CLASS_O, EXPERTS_8, T(q5_k) }, { CLASS_O, ALWAYS, T(iq3_s) },
        { CLASS_EMBD, ALWAYS, T(iq3_s) } } },
    { "IQ2_M", 29, T(iq2_s), LOW_BIT,
      { { CLASS_V, GQA_4_OR_EXPERTS_4, T(q4_k) }, { CLASS_V, ALWAYS, T(iq3_s) }, { CLASS_K, EXPERTS_8, T(q4_k) },
        { CLASS_DOWN, FIRST_8TH, T(iq3_s) }, { CLASS_O, EXPERTS_8, T(q5_k) }, { CLASS_O, ALWAYS, T(iq3_s) },
        { CLASS_EMBD, ALWAYS, T(iq3_s) } } },
    { "IQ1_S", 24, T(iq1_s), LOW_BIT,
      { { CLASS_V, GQA_4_OR_EXPERTS_4, T(q4_k) }, { CLASS_V, ALWAYS, T(q2_k) }, { CLASS_K, EXPERTS_8, T(q4_k) },
        { CLASS_DOWN, FIRST_8TH, T(q2_k) }, { CLASS_O, EXPERTS_8, T(q5_k) }, { CLASS_O, ALWAYS, T(iq2_xxs) },
        { CLASS_EMBD, ALWAYS, T(q2_k) } } },
    { "IQ1_M", 31, T(iq1_m), LOW_BIT,
      { { CLASS_V, GQA_4_OR_EXPERTS_4, T(q4_k) }, { CLASS_V, ALWAYS, T(q2_k) }, { CLASS_K, EXPERTS_8, T(q4_k) },
        { CLASS_DOWN, FIRST_8TH, T(q2_k) }, { CLASS_O, EXPERTS_8, T(q5_k) }, { CLASS_O, ALWAYS, T(iq2_xxs) },
        { CLASS_EMBD, ALWAYS, T(q2_k) } } },
    { "TQ1_0", 36, T(tq1_0), 0, { { CLASS_EMBD, ALWAYS, T(q4_k) } } },
    { "TQ2_0", 37, T(tq2_0), 0, { { CLASS_EMBD, ALWAYS, T(q4_k) } } },
};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* Names that llama-quantize takes for another recipe. */
static const struct { const char* alias; const char* name; } aliases[] = {
    { "Q3_K", "Q3_K_M" }, { "Q4_K", "Q4_K_M" }, { "Q5_K", "Q5_K_M" }, { "FP16", "F16" }, { "FP32", "F32" },
};

const ht_recipe* ht_recipe_find(const char* name)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (strcasecmp(name, aliases[i].alias) == 0) { name = aliases[i].name; }
    }
    for (int i = 0; i < N_RECIPES; i++) {
        if (strcasecmp(name, recipes[i].name) == 0) { return &recipes[i]; }
    }
    return NULL;
}

const ht_recipe* ht_recipe_at(int index) { return index >= 0 && index < N_RECIPES ? &recipes[index] : NULL; }
const char*      ht_recipe_name(const ht_recipe* recipe) { return recipe->name; }
uint32_t         ht_recipe_file_type(const ht_recipe* recipe) { return recipe->file_type; }
ht_type          ht_recipe_default_type(const ht_recipe* recipe) { return recipe->type; }

/* Levenshtein distance, case-insensitive; names are short. */
static int name_distance(const char* a, const char* b)
{
    enum { MAX_NAME = 31 };
    int       row[MAX_NAME + 1];
    const int n = (int)strlen(b);
    if (n > MAX_NAME || strlen(a) > MAX_NAME) { return MAX_NAME; }
    for (int j = 0; j <= n; j++) { row[j] = j; }
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0]       = i;
        for (int j = 1; j <= n; j++) {
            const int replaced = diagonal + (strncasecmp(a + i - 1, b + j - 1, 1) != 0);
            diagonal           = row[j];
            const int edited   = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j]             = replaced < edited ? replaced : edited;
        }
    }
    return row[n];
}

char* ht_recipe_suggest(const char* name, char* buf, size_t n_buf)
{
    int used = 0;
    buf[0]   = '\0';
    for (int distance = 0, n = 0; distance < 8 && n < 3; distance++) {
        for (int i = 0; i < N_RECIPES && n < 3; i++) {
            if (name_distance(name, recipes[i].name) != distance) { continue; }
            const int wrote = snprintf(buf + used, n_buf - (size_t)used, "%s%s", n ? ", " : "", recipes[i].name);
            if (wrote < 0 || (size_t)(used + wrote) >= n_buf) { return buf; }
            used += wrote;
            n++;
        }
    }
    return buf;
}

static tensor_class class_of(const char* name)
{
    for (size_t i = 0; i < sizeof class_names / sizeof *class_names; i++) {
        /* "attn_output.weight" contains "output.weight": the output matrix is the one whose whole name it is */
        if (class_names[i].kind == CLASS_OUTPUT ? strcmp(name, "output.weight") == 0 : strstr(name, class_names[i].part) != NULL) {
            return class_names[i].kind;
        }
    }
    return CLASS_OTHER;
}

static int64_t layer_of(const char* name)
{
    return strncmp(name, "blk.", 4) == 0 ? strtoll(name + 4, NULL, 10) : -1;
}

bool ht_tensor_is_quantizable(const ht_tensor_info* tensor)
{
    static const char* const never[] = {
        "_norm.weight", "ffn_gate_inp.weight", "altup", "laurel", "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight",
        "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight", "time_mix_w2.weight", "time_mix_v0.weight",
        "time_mix_v1.weight", "time_mix_v2.weight", "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight",
        "time_mix_g1.weight", "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight",
        "time_mix_lerp_fused.weight", "attn_rel_b.weight", ".position_embd", ".patch_embd", ".patch_merger", "sam.", ".rel_pos",
        "position_embd.weight", "token_types.weight",
    };
    const size_t n_name = strlen(tensor->name);
    if (tensor->n_dims < 2 || n_name < 6 || strcmp(tensor->name + n_name - 6, "weight") != 0) { return false; }
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        if (strstr(tensor->name, never[i])) { return false; }
    }
    return true;
}

void ht_recipe_model_init(ht_recipe_model* model, const ht_meta* meta, const ht_tensor_info* tensors, int64_t n_tensors,
                          bool has_importance)
{
    char key[128];
    *model = (ht_recipe_model){ .arch = "", .has_importance = has_importance, .is_tied = true };
    (void)ht_meta_get_string(meta, "general.architecture", 0, &model->arch, NULL);
    snprintf(key, sizeof key, "%.60s.block_count", model->arch);
    (void)ht_meta_get_i64(meta, key, 0, &model->n_layers, NULL);
    snprintf(key, sizeof key, "%.60s.attention.head_count", model->arch);
    (void)ht_meta_get_i64(meta, key, 0, &model->n_heads, NULL); /* per-layer arrays: no rule that counts heads applies */
    snprintf(key, sizeof key, "%.60s.attention.head_count_kv", model->arch);
    model->n_heads_kv = model->n_heads;
    (void)ht_meta_get_i64(meta, key, 0, &model->n_heads_kv, NULL);
    snprintf(key, sizeof key, "%.60s.expert_count", model->arch);
    (void)ht_meta_get_i64(meta, key, 0, &model->n_experts, NULL);
    for (int64_t i = 0; i < n_tensors; i++) {
        if (strcmp(tensors[i].name, "output.weight") == 0) { model->is_tied = false; }
    }
}

static bool applies(condition when, const ht_recipe_model* m, int64_t i, int64_t n)
{
    const int64_t gqa = m->n_heads_kv > 0 ? m->n_heads / m->n_heads_kv : 0;
    const bool    more = i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    switch (when) {
    case ALWAYS: return true;
    case FIRST_2: return i < 2;
    case FIRST_4: return i < 4;
    case FIRST_16TH: return i < n / 16;
    case FIRST_8TH: return i < n / 8;
    case FIRST_8TH_IMPORTANCE: return m->has_importance && i < n / 8;
    case FIRST_8TH_NO_IMPORTANCE: return !m->has_importance && i < n / 8;
    case MIDDLE: return i >= n / 8 && i < 7 * n / 8;
    case MORE: return more;
    case NO_IMPORTANCE: return !m->has_importance;
    case GQA_4: return gqa >= 4;
    case GQA_4_OR_EXPERTS_4: return gqa >= 4 || m->n_experts >= 4;
    case EXPERTS_8: return m->n_experts == 8;
    case EXPERTS_8_MORE: return m->n_experts == 8 && more;
    }
    return false;
}

/* The output matrix, and the embedding when it serves as output too. */
static ht_type output_type(const ht_recipe* recipe, const ht_tensor_info* tensor)
{
    const ht_type_info* info = ht_type_get(recipe->type);
    if (info->is_float) { return recipe->type; }
    if (recipe->type == HT_TYPE_mxfp4 || recipe->type == HT_TYPE_q8_0 || tensor->ne[0] % info->block_elems != 0) { return HT_TYPE_q8_0; }
    return (recipe->flags & LOW_BIT) || recipe->type == HT_TYPE_iq3_xxs ? HT_TYPE_q5_k : HT_TYPE_q6_k;
}

static ht_type type_by_rules(const ht_recipe* recipe, const ht_recipe_model* m, const ht_tensor_info* tensor, tensor_class kind, int64_t i,
                             int64_t n)
{
    if (kind == CLASS_OUTPUT || (kind == CLASS_EMBD && m->is_tied)) { return output_type(recipe, tensor); }
    if (recipe->flags & EXPERTS_ONLY) { return tensor->ne[2] > 1 ? HT_TYPE_mxfp4 : HT_TYPE_q8_0; }
    ht_type type = recipe->type;
    for (int r = 0; r < MAX_RULES && recipe->rules[r].type != HT_TYPE_f32; r++) {
        if (recipe->rules[r].kind == kind && applies(recipe->rules[r].when, m, i, n)) {
            type = recipe->rules[r].type;
            break;
        }
    }
    if ((recipe->flags & LOW_BIT) || ht_type_get(recipe->type)->is_float) { return type; }
    /* closing rules for every other recipe: 80-layer Llama, and 8 experts */
    const bool is_70b = strcmp(m->arch, "llama") == 0 && m->n_layers == 80 && m->n_heads != m->n_heads_kv;
    if (kind == CLASS_V && is_70b && (type == HT_TYPE_q3_k || type == HT_TYPE_q4_k)) { type = HT_TYPE_q5_k; }
    if ((kind == CLASS_V || kind == CLASS_K) && m->n_experts == 8) { type = HT_TYPE_q8_0; }
    return type;
}

typedef struct ordered {
    int64_t     index, layer;
    const char* name;
} ordered;

static int by_layer_then_name(const void* a, const void* b)
{
    const ordered* x = a;
    const ordered* y = b;
    if (x->layer != y->layer) { return x->layer < y->layer ? -1 : 1; }
    return strcmp(x->name, y->name);
}

ht_status ht_recipe_assign(const ht_recipe* recipe, const ht_recipe_model* model, const ht_tensor_info* tensors, int64_t n_tensors,
                           ht_type* types, ht_error* err)
{
    ht_status st              = HT_STATUS_OK;
    int64_t   seen[N_CLASSES] = { 0 }, n_v = 0;
    ordered*  order           = calloc((size_t)n_tensors + 1, sizeof *order);
    HT_CHECK(order, NOMEM, "order of tensors");
    for (int64_t i = 0; i < n_tensors; i++) {
        order[i] = (ordered){ i, layer_of(tensors[i].name), tensors[i].name };
        n_v += class_of(tensors[i].name) == CLASS_V;
    }
    qsort(order, (size_t)n_tensors, sizeof *order, by_layer_then_name);
    for (int64_t k = 0; k < n_tensors; k++) {
        const ht_tensor_info* tensor = &tensors[order[k].index];
        const tensor_class    kind   = class_of(tensor->name);
        ht_type*              type   = &types[order[k].index];
        if (!ht_tensor_is_quantizable(tensor)) {
            const ht_type_info* native = ht_type_get(tensor->type);
            *type = tensor->n_dims < 2 && native->is_float ? HT_TYPE_f32 : tensor->type;
            continue;
        }
        /* with experts the layer number counts, as one layer may hold several tensors of the kind */
        const bool by_layer = model->n_experts > 1 && (kind == CLASS_UP || kind == CLASS_GATE || kind == CLASS_DOWN);
        const int64_t i     = by_layer ? order[k].layer : seen[kind];
        *type = type_by_rules(recipe, model, tensor, kind, i, kind == CLASS_V ? n_v : model->n_layers);
        seen[kind]++;
    }
done:
    free(order);
    return st;
}

ht_type ht_type_for_row(ht_type wanted, int64_t n_elems)
{
    while (n_elems % ht_type_get(wanted)->block_elems != 0) { wanted = ht_type_get(wanted)->fallback; }
    return wanted;
}
