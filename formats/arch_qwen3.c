/* Qwen3 (dense): as Llama, but rope pairs are (j, j + d/2), so no row moves; q and k of every head pass an RMS norm; head_dim is explicit. */
#include "formats/arch.h"

#include <stddef.h>

static const char* const classes[]     = { "Qwen3ForCausalLM", NULL };
static const char* const model_types[] = { "qwen3", NULL };

#define LAYER "model.layers.%d."

static const ht_arch_tensor tensors[] = {
    { "model.embed_tokens.weight",                  "token_embd.weight",            HT_SIZE_VOCAB,  HT_SIZE_EMBD,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "input_layernorm.weight",               "blk.%d.attn_norm.weight",      HT_SIZE_EMBD,   HT_SIZE_NONE,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "mlp.down_proj.weight",                 "blk.%d.ffn_down.weight",       HT_SIZE_EMBD,   HT_SIZE_FF,     HT_ROW_ORDER_AS_IS,   false },
    { LAYER "mlp.gate_proj.weight",                 "blk.%d.ffn_gate.weight",       HT_SIZE_FF,     HT_SIZE_EMBD,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "mlp.up_proj.weight",                   "blk.%d.ffn_up.weight",         HT_SIZE_FF,     HT_SIZE_EMBD,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "post_attention_layernorm.weight",      "blk.%d.ffn_norm.weight",       HT_SIZE_EMBD,   HT_SIZE_NONE,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "self_attn.k_norm.weight",              "blk.%d.attn_k_norm.weight",    HT_SIZE_HEAD,   HT_SIZE_NONE,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "self_attn.k_proj.weight",              "blk.%d.attn_k.weight",         HT_SIZE_KV,     HT_SIZE_EMBD,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "self_attn.o_proj.weight",              "blk.%d.attn_output.weight",    HT_SIZE_EMBD,   HT_SIZE_Q,      HT_ROW_ORDER_AS_IS,   false },
    { LAYER "self_attn.q_norm.weight",              "blk.%d.attn_q_norm.weight",    HT_SIZE_HEAD,   HT_SIZE_NONE,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "self_attn.q_proj.weight",              "blk.%d.attn_q.weight",         HT_SIZE_Q,      HT_SIZE_EMBD,   HT_ROW_ORDER_AS_IS,   false },
    { LAYER "self_attn.v_proj.weight",              "blk.%d.attn_v.weight",         HT_SIZE_KV,     HT_SIZE_EMBD,   HT_ROW_ORDER_AS_IS,   false },
    { "model.norm.weight",                          "output_norm.weight",           HT_SIZE_EMBD,   HT_SIZE_NONE,   HT_ROW_ORDER_AS_IS,   false },
    { "lm_head.weight",                             "output.weight",                HT_SIZE_VOCAB,  HT_SIZE_EMBD,   HT_ROW_ORDER_AS_IS,   true },
    { NULL, NULL, HT_SIZE_NONE, HT_SIZE_NONE, HT_ROW_ORDER_AS_IS, false },
};

const ht_arch ht_arch_qwen3 = { "qwen3", classes, model_types, NULL, tensors, NULL, true };
