/*
 * Llama 2, 3, 3.x, Mistral, SmolLM, SmolLM2: RMS norm, grouped-query attention with rope on interleaved pairs, gated SiLU.
 * The window of Mistral 7B v0.1 and llama3 frequency factors come with the shared rules.
 */
#include "formats/arch.h"

#include <stddef.h>

static const char* const classes[]     = { "LlamaForCausalLM", "MistralForCausalLM", NULL };
static const char* const model_types[] = { "llama", "mistral", NULL };

static const ht_arch_key keys[] = {
    { "vocab_size", HT_SIZE_VOCAB, { NULL }, true },
    { "rope.dimension_count", HT_SIZE_HEAD, { NULL }, true },
    { NULL, HT_SIZE_NONE, { NULL }, false },
};

#define LAYER "model.layers.%d."

static const ht_arch_tensor tensors[] = {
    { "model.embed_tokens.weight",                  "token_embd.weight",            HT_SIZE_VOCAB,  HT_SIZE_EMBD,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "input_layernorm.weight",               "blk.%d.attn_norm.weight",      HT_SIZE_EMBD,   HT_SIZE_NONE,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "mlp.down_proj.weight",                 "blk.%d.ffn_down.weight",       HT_SIZE_EMBD,   HT_SIZE_FF,     HT_ROW_ORDER_AS_IS,   false },
    { LAYER "mlp.gate_proj.weight",                 "blk.%d.ffn_gate.weight",       HT_SIZE_FF,     HT_SIZE_EMBD,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "mlp.up_proj.weight",                   "blk.%d.ffn_up.weight",         HT_SIZE_FF,     HT_SIZE_EMBD,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "post_attention_layernorm.weight",      "blk.%d.ffn_norm.weight",       HT_SIZE_EMBD,   HT_SIZE_NONE,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "self_attn.k_proj.bias",                "blk.%d.attn_k.bias",           HT_SIZE_KV,     HT_SIZE_NONE,   HT_ROW_ORDER_ROPE_K,  true },
    { LAYER "self_attn.k_proj.weight",              "blk.%d.attn_k.weight",         HT_SIZE_KV,     HT_SIZE_EMBD,   HT_ROW_ORDER_ROPE_K,  false },
    { LAYER "self_attn.o_proj.bias",                "blk.%d.attn_output.bias",      HT_SIZE_EMBD,   HT_SIZE_NONE,   HT_ROW_ORDER_AS_IS,   true },
    { LAYER "self_attn.o_proj.weight",              "blk.%d.attn_output.weight",    HT_SIZE_EMBD,   HT_SIZE_Q,      HT_ROW_ORDER_AS_IS,   false },
    { LAYER "self_attn.q_proj.bias",                "blk.%d.attn_q.bias",           HT_SIZE_Q,      HT_SIZE_NONE,   HT_ROW_ORDER_ROPE_Q,  true },
    { LAYER "self_attn.q_proj.weight",              "blk.%d.attn_q.weight",         HT_SIZE_Q,      HT_SIZE_EMBD,   HT_ROW_ORDER_ROPE_Q,  false },
    { LAYER "self_attn.v_proj.bias",                "blk.%d.attn_v.bias",           HT_SIZE_KV,     HT_SIZE_NONE,   HT_ROW_ORDER_AS_IS,   true },
    { LAYER "self_attn.v_proj.weight",              "blk.%d.attn_v.weight",         HT_SIZE_KV,     HT_SIZE_EMBD,   HT_ROW_ORDER_AS_IS,   false },
    { "model.norm.weight",                          "output_norm.weight",           HT_SIZE_EMBD,   HT_SIZE_NONE,   HT_ROW_ORDER_AS_IS,   false },
    { "lm_head.weight",                             "output.weight",                HT_SIZE_VOCAB,  HT_SIZE_EMBD,   HT_ROW_ORDER_AS_IS,   true },
    { NULL, NULL, HT_SIZE_NONE, HT_SIZE_NONE, HT_ROW_ORDER_AS_IS, false },
};

const ht_arch ht_arch_llama = { "llama", classes, model_types, keys, tensors, NULL, false };
