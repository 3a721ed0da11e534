#include "formats/arch.h"

#include <stdio.h>
#include <string.h>

static const ht_arch* const families[] = {
    &ht_arch_llama,
    &ht_arch_qwen2,
    &ht_arch_qwen3,
};

enum { N_FAMILIES = sizeof families / sizeof *families };

const ht_arch_key ht_arch_common_keys[] = {
    { "block_count", HT_SIZE_LAYERS, { NULL }, true },
    { "context_length", HT_SIZE_CONTEXT, { NULL }, true },
    { "embedding_length", HT_SIZE_EMBD, { NULL }, true },
    { "feed_forward_length", HT_SIZE_FF, { NULL }, true },
    { "attention.head_count", HT_SIZE_HEADS, { NULL }, true },
    { "attention.head_count_kv", HT_SIZE_HEADS_KV, { NULL }, true },
    { "attention.layer_norm_rms_epsilon", HT_SIZE_NONE, { "rms_norm_eps", "norm_eps" }, true },
    { "attention.key_length", HT_SIZE_HEAD, { "head_dim" }, false },
    { "attention.value_length", HT_SIZE_HEAD, { "head_dim" }, false },
    { NULL, HT_SIZE_NONE, { NULL }, false },
};

/* Causal masks and rope tables of older checkpoints, which every runtime computes. */
const char* const ht_arch_common_dropped[] = { ".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq", NULL };

static bool list_has(const char* const* list, const char* name)
{
    for (; *list; list++) {
        if (strcmp(*list, name) == 0) { return true; }
    }
    return false;
}

const ht_arch* ht_arch_find_class(const char* class_name)
{
    for (int i = 0; i < N_FAMILIES; i++) {
        if (list_has(families[i]->classes, class_name)) { return families[i]; }
    }
    return NULL;
}

const ht_arch* ht_arch_find_model_type(const char* model_type)
{
    for (int i = 0; i < N_FAMILIES; i++) {
        if (list_has(families[i]->model_types, model_type)) { return families[i]; }
    }
    return NULL;
}

char* ht_arch_list_classes(char* buf, uint64_t n_buf)
{
    uint64_t used = 0;
    if (n_buf > 0) { buf[0] = '\0'; }
    for (int i = 0; i < N_FAMILIES; i++) {
        for (const char* const* name = families[i]->classes; *name && used < n_buf; name++) {
            const int n = snprintf(buf + used, n_buf - used, "%s%s", used ? ", " : "", *name);
            used += n > 0 ? (uint64_t)n : 0;
        }
    }
    return buf;
}
