#!/usr/bin/env python3
"""A Llama-shaped checkpoint of random bf16 weights with the bundled tokenizer, for timing layers of a size that no bundled model has. Needs numpy.

usage: make_shape.py OUT [--hidden 4096] [--ffn 14336] [--heads 32] [--kv-heads 8] [--layers 2]
"""
import argparse, json, os, shutil, struct
import numpy as np

p = argparse.ArgumentParser()
p.add_argument("out")
for name, default in (("hidden", 4096), ("ffn", 14336), ("heads", 32), ("kv-heads", 8), ("layers", 2)):
    p.add_argument("--" + name, type=int, default=default)
a = p.parse_args()
tiny = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "tiny")
config = json.load(open(os.path.join(tiny, "config.json")))
head = a.hidden // a.heads
config.update(hidden_size=a.hidden, intermediate_size=a.ffn, num_attention_heads=a.heads, num_key_value_heads=a.kv_heads, num_hidden_layers=a.layers, head_dim=head)
os.makedirs(a.out, exist_ok=True)
for name in os.listdir(tiny):
    if not name.endswith(".safetensors") and name != "config.json":
        shutil.copy(os.path.join(tiny, name), a.out)
json.dump(config, open(os.path.join(a.out, "config.json"), "w"), indent=1)

shapes = {"model.embed_tokens.weight": (config["vocab_size"], a.hidden), "model.norm.weight": (a.hidden,)}
for i in range(a.layers):
    b = f"model.layers.{i}."
    shapes |= {b + "input_layernorm.weight": (a.hidden,), b + "post_attention_layernorm.weight": (a.hidden,),
               b + "self_attn.q_proj.weight": (a.heads * head, a.hidden), b + "self_attn.k_proj.weight": (a.kv_heads * head, a.hidden),
               b + "self_attn.v_proj.weight": (a.kv_heads * head, a.hidden), b + "self_attn.o_proj.weight": (a.hidden, a.heads * head),
               b + "mlp.gate_proj.weight": (a.ffn, a.hidden), b + "mlp.up_proj.weight": (a.ffn, a.hidden), b + "mlp.down_proj.weight": (a.hidden, a.ffn)}
if not config.get("tie_word_embeddings", True):
    shapes["lm_head.weight"] = (config["vocab_size"], a.hidden)
header, at = {}, 0
for name, shape in shapes.items():
    n = 2 * int(np.prod(shape))
    header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + n]}
    at += n
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
rng = np.random.default_rng(1)
with open(os.path.join(a.out, "model.safetensors"), "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    for name, shape in shapes.items():
        x = np.ones(shape, np.float32) if len(shape) == 1 else rng.standard_normal(shape, np.float32) * np.float32(0.5 / shape[1] ** 0.5)
        f.write((x.view(np.uint32) >> 16).astype(np.uint16).tobytes())
