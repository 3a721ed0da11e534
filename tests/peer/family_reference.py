#!/usr/bin/env python3
"""A forward pass of the model families in double precision, from the definitions, against `halftone run` on the same random checkpoints.

  family_reference.py HALFTONE WORK_DIR

Each case is a small Hugging Face folder with random weights (norms and biases too, so that every tensor counts). It is computed here in numpy
from the HF names and the HF row order, as transformers' modeling code defines it, and by Halftone three ways: from the folder, and from an F32
GGUF that `halftone convert` makes of it, with the F16 KV cache as a third. All logits of the last position must agree. Exit 1 names the cases
that do not.
"""
import json
import math
import os
import struct
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import make_tiny

TOLERANCE = 1e-5        # of the largest logit, float32 sums against float64
TOLERANCE_F16_KV = 2e-3  # keys and values keep 11 bits
N_IDS = 70

CASES = {
    "llama": ("llama", {}),
    "llama-head64": ("llama", {"head_dim": 64}),
    "llama-bias": ("llama", {"attention_bias": True}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-mha": ("llama", {"num_key_value_heads": 8, "rope_theta": 500000.0}),
    "llama3-rope": ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                               "original_max_position_embeddings": 64}}),
    "llama-linear": ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    "llama-yarn": ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}),
    "llama-yarn-given": ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64,
                                                    "attention_factor": 1.3, "beta_fast": 16.0, "beta_slow": 2.0}}),
    "mistral-window": ("llama", {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 20}),
    "qwen2": ("qwen2", {}),
    "qwen2-window": ("qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1, "tie_word_embeddings": True}),
    "qwen2-yarn": ("qwen2", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}}),
    "qwen3": ("qwen3", {}),
    "qwen3-head64": ("qwen3", {"head_dim": 64, "num_key_value_heads": 4, "rope_theta": 1000000.0}),
}


# --- the reference ---------------------------------------------------------------------------------------------------------------------


def rope_frequencies(c):
    """Radians per position of each pair, and the factor on sin and cos: transformers' modeling_rope_utils."""
    d, theta, s = c["head_dim"], c["rope_theta"], c.get("rope_scaling") or {}
    freq = theta ** (-np.arange(0, d, 2) / d)
    kind = s.get("rope_type", s.get("type", "default"))
    if kind == "linear":
        return freq / s["factor"], 1.0
    if kind == "llama3":
        old, wavelength = s["original_max_position_embeddings"], 2 * math.pi / freq
        low, high = s["low_freq_factor"], s["high_freq_factor"]
        smooth = (old / wavelength - low) / (high - low)
        blended = (1 - smooth) * freq / s["factor"] + smooth * freq
        return np.where(wavelength > old / low, freq / s["factor"], np.where(wavelength < old / high, freq, blended)), 1.0
    if kind == "yarn":
        old = s["original_max_position_embeddings"]
        dim_of = lambda turns: d * math.log(old / (turns * 2 * math.pi)) / (2 * math.log(theta))
        low = max(math.floor(dim_of(s.get("beta_fast", 32.0))), 0)
        high = min(math.ceil(dim_of(s.get("beta_slow", 1.0))), d - 1)
        ramp = np.clip((np.arange(d // 2) - low) / max(high - low, 0.001), 0, 1)
        return freq / s["factor"] * ramp + freq * (1 - ramp), s.get("attention_factor", 0.1 * math.log(s["factor"]) + 1.0)
    return freq, 1.0


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rotate(x, cos, sin):
    """x (T, heads, d): the HF layout, pair j is (j, j + d/2)."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def window_of(c, layer):
    if "sliding_window" not in c:
        return 0
    return c["sliding_window"] if layer >= c.get("max_window_layers", 0) or not c.get("use_sliding_window") else 0


def attention(c, w, layer, h, cos, sin):
    prefix, eps, n, d = f"model.layers.{layer}.self_attn.", c["rms_norm_eps"], h.shape[0], c["head_dim"]
    project = lambda name: h @ w[f"{prefix}{name}_proj.weight"].T + w.get(f"{prefix}{name}_proj.bias", 0.0)
    q, k, v = (project(name).reshape(n, -1, d) for name in "qkv")
    if prefix + "q_norm.weight" in w:
        q, k = rms_norm(q, w[prefix + "q_norm.weight"], eps), rms_norm(k, w[prefix + "k_norm.weight"], eps)
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    score = np.einsum("thd,shd->hts", q, k) / math.sqrt(d)
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    window = window_of(c, layer)
    hidden = (distance < 0) | ((distance >= window) if window else False)
    score = np.where(hidden, -np.inf, score)
    p = np.exp(score - score.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    out = np.einsum("hts,shd->thd", p, v).reshape(n, -1)
    return out @ w[prefix + "o_proj.weight"].T + w.get(prefix + "o_proj.bias", 0.0)


def forward(c, w, ids):
    """Logits of the last position."""
    freq, magnitude = rope_frequencies(c)
    angle = np.arange(len(ids))[:, None, None] * freq
    cos, sin = np.cos(angle) * magnitude, np.sin(angle) * magnitude
    x, eps = w["model.embed_tokens.weight"][ids], c["rms_norm_eps"]
    for layer in range(c["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        x = x + attention(c, w, layer, rms_norm(x, w[prefix + "input_layernorm.weight"], eps), cos, sin)
        h = rms_norm(x, w[prefix + "post_attention_layernorm.weight"], eps)
        gate, up = h @ w[prefix + "mlp.gate_proj.weight"].T, h @ w[prefix + "mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[prefix + "mlp.down_proj.weight"].T
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return rms_norm(x[-1], w["model.norm.weight"], eps) @ head.T


# --- the checkpoints ---------------------------------------------------------------------------------------------------------------------


def make_weights(c, family, rng):
    shapes = make_tiny.shapes(c, family)
    if c.get("attention_bias"):
        for layer in range(c["num_hidden_layers"]):
            for name in "qkvo":
                prefix = f"model.layers.{layer}.self_attn.{name}_proj."
                shapes[prefix + "bias"] = shapes[prefix + "weight"][:1]
    if c["tie_word_embeddings"]:
        del shapes["lm_head.weight"]
    out = {}
    for name, shape in shapes.items():
        x = rng.standard_normal(shape)
        x = 1 + 0.3 * x if "norm" in name else 0.5 * x if name.endswith("bias") else 0.08 * x
        out[name] = x.astype(np.float32)
    if "lm_head.weight" in out:     # llama.cpp gives no probabilities for tokens that end inside a character: make them unlikely
        for i in [*range(128, 256), *range(284, 288)]:
            out["lm_head.weight"][i] *= 0.01
    return out


def save(folder, c, w):
    os.makedirs(folder)
    main, extra = make_tiny.tokenizer()
    for name, value in (("config.json", c), ("tokenizer.json", main), ("tokenizer_config.json", extra)):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as f:
            json.dump(value, f)
    header, offset = {}, 0
    for name, x in w.items():
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [offset, offset + x.nbytes]}
        offset += x.nbytes
    text = json.dumps(header).encode()
    with open(f"{folder}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(x.tobytes() for x in w.values()))


def halftone_logits(halftone, path, ids, n_vocab, kv):
    done = subprocess.run([halftone, "run", path, "--prompt-ids", ",".join(map(str, ids)), "-n", "0", "--top", str(n_vocab), "--kv", kv,
                           "--compute", "exact", "--json"], check=True, stdout=subprocess.PIPE, text=True)
    out = np.full(n_vocab, np.nan)
    for token in json.loads(done.stdout)["next_top"]:
        out[token["id"]] = token["logit"]
    return out


def check(halftone, work, name, family, changes):
    rng = np.random.default_rng([ord(letter) for letter in name])
    c = {**make_tiny.config(family), "torch_dtype": "float32", **changes}
    w = make_weights(c, family, rng)
    ids = [int(i) for i in rng.integers(0, 256, N_IDS)]
    folder, gguf = f"{work}/{name}", f"{work}/{name}.gguf"
    save(folder, c, w)
    subprocess.run([halftone, "convert", folder, "-t", "F32", "-o", gguf, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    expected = forward(c, {k: x.astype(np.float64) for k, x in w.items()}, ids)
    size, good, words = np.abs(expected).max(), True, []
    for label, path, kv, tolerance in (("folder", folder, "f32", TOLERANCE), ("gguf", gguf, "f32", TOLERANCE), ("f16 KV", gguf, "f16", TOLERANCE_F16_KV)):
        error = np.abs(halftone_logits(halftone, path, ids, len(expected), kv) - expected).max() / size
        good = good and bool(error <= tolerance)        # NaN fails
        words.append(f"{label} {error:.1e}")
    print(f"{'ok  ' if good else 'FAIL'} {name:18} largest logit {size:6.2f}, relative error: {', '.join(words)}")
    return good


def main(halftone, work):
    results = [check(halftone, work, name, *case) for name, case in CASES.items()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
