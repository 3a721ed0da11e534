#!/usr/bin/env python3
"""TINY for shell tests: a Hugging Face checkpoint of two layers in a new folder. Standard library only.

  make_tiny.py OUT [--family llama|qwen2|qwen3] [--shards N] [--seed N] [--no-head]
               [--set KEY=JSON ...]                   members of config.json; sizes change the tensors with them
               [--value NAME,ROW,COL,NUMBER ...]      one weight: 3.5, nan, inf
               [--fill NAME=rows ...]                 every value is its row number
               [--drop NAME ...]                      leave a tensor out

The same model as tests/tiny_model.h in shapes and tokenizer (byte-level BPE: 256 byte symbols, 28 merges, <s> </s> <unk> <pad>).
Weights are bf16 with magnitudes of 2^-7 to 2^-5 (norms are ones), seeded.
"""
import argparse
import json
import math
import os
import random
import struct

MERGES = ["t h", "th e", "i n", "a n", "e r", "o n", "r e", "a t", "e n", "n d", "o r", "e s", "i s", "a r", "i t", "o u", "n g", "l l",
          "s t", "a l", "e d", "an d", "\u0120 the", "\u0120 a", "\u0120 w", "o m", "h e", "l e"]
SPECIALS = ["<s>", "</s>", "<unk>", "<pad>"]
CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def config(family):
    return dict(model_type=family, architectures=[CLASSES[family]], hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                num_attention_heads=8, num_key_value_heads=2, head_dim=32, vocab_size=288, rms_norm_eps=1e-5, rope_theta=10000.0,
                max_position_embeddings=512, tie_word_embeddings=False, torch_dtype="bfloat16", bos_token_id=284, eos_token_id=285)


def shapes(c, family):
    h, f, d, v = c["hidden_size"], c["intermediate_size"], c["head_dim"], c["vocab_size"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    out = {"model.embed_tokens.weight": (v, h), "model.norm.weight": (h,), "lm_head.weight": (v, h)}
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        out.update({p + "input_layernorm.weight": (h,), p + "post_attention_layernorm.weight": (h,),
                    p + "self_attn.q_proj.weight": (q, h), p + "self_attn.k_proj.weight": (kv, h), p + "self_attn.v_proj.weight": (kv, h),
                    p + "self_attn.o_proj.weight": (h, q), p + "mlp.gate_proj.weight": (f, h), p + "mlp.up_proj.weight": (f, h),
                    p + "mlp.down_proj.weight": (h, f)})
        if family == "qwen2":
            out.update({p + "self_attn.q_proj.bias": (q,), p + "self_attn.k_proj.bias": (kv,), p + "self_attn.v_proj.bias": (kv,)})
        if family == "qwen3":
            out.update({p + "self_attn.q_norm.weight": (d,), p + "self_attn.k_norm.weight": (d,)})
    return out


def bf16(x):
    """Round to nearest, ties to even; NaN stays NaN."""
    if math.isnan(x):
        return 0x7FC0
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    return (u + 0x7FFF + ((u >> 16) & 1)) >> 16 & 0xFFFF


def weights(name, shape, rng):
    n = math.prod(shape)
    if "norm" in name:
        return bytearray(struct.pack("<H", 0x3F80) * n)
    # random sign, low exponent bit and mantissa under a fixed upper exponent: 2^-7 <= |x| < 2^-5
    bits = int.from_bytes(rng.randbytes(2 * n), "little")
    keep, exponent = (int.from_bytes(struct.pack("<H", m) * n, "little") for m in (0x80FF, 0x3C00))
    return bytearray((bits & keep | exponent).to_bytes(2 * n, "little"))


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = dict(dtype="BF16", shape=list(shape), data_offsets=[offset, offset + len(data)])
        offset += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            f.write(data)


def byte_symbols():
    """The printable stand-in of each byte: itself when printable Latin-1, else U+0100 and up in order."""
    out, n_shifted = [], 0
    for b in range(256):
        if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174:
            out.append(chr(b))
        else:
            out.append(chr(256 + n_shifted))
            n_shifted += 1
    return out


def tokenizer():
    texts = byte_symbols() + [m.replace(" ", "") for m in MERGES]
    added = [dict(id=284 + i, content=t, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False) for i, t in enumerate(SPECIALS)]
    digits = dict(type="Digits", individual_digits=True)
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    main = dict(version="1.0", normalizer=None, post_processor=None, pre_tokenizer=dict(type="Sequence", pretokenizers=[digits, level]),
                decoder=level, added_tokens=added,
                model=dict(type="BPE", byte_fallback=False, vocab={t: i for i, t in enumerate(texts)}, merges=MERGES))
    extra = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>", add_bos_token=False,
                 tokenizer_class="PreTrainedTokenizerFast",
                 added_tokens_decoder={str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in added})
    return main, extra


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--family", choices=CLASSES, default="llama")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-head", action="store_true", help="tied embeddings: no lm_head")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON")
    parser.add_argument("--value", action="append", default=[], metavar="NAME,ROW,COL,NUMBER")
    parser.add_argument("--fill", action="append", default=[], metavar="NAME=rows")
    parser.add_argument("--drop", action="append", default=[], metavar="NAME")
    args = parser.parse_args()

    c = config(args.family)
    for pair in args.set:
        key, value = pair.split("=", 1)
        c[key] = json.loads(value)
    if args.no_head:
        c["tie_word_embeddings"] = True
        args.drop.append("lm_head.weight")
    rng = random.Random(args.seed)
    tensors = {name: (shape, weights(name, shape, rng)) for name, shape in shapes(c, args.family).items()}
    for pair in args.fill:
        shape, data = tensors[pair.split("=", 1)[0]]
        data[:] = b"".join(struct.pack("<H", bf16(row)) * shape[-1] for row in range(math.prod(shape) // shape[-1]))
    for item in args.value:
        name, row, col, number = item.split(",")
        shape, data = tensors[name]
        struct.pack_into("<H", data, 2 * (int(row) * shape[-1] + int(col)), bf16(float(number)))
    for name in args.drop:
        del tensors[name]

    os.makedirs(args.out)
    names, index = list(tensors), {}
    for i in range(args.shards):
        part = names[len(names) * i // args.shards:len(names) * (i + 1) // args.shards]
        file = "model.safetensors" if args.shards == 1 else f"model-{i + 1:05}-of-{args.shards:05}.safetensors"
        write_safetensors(os.path.join(args.out, file), {n: tensors[n] for n in part})
        index.update({n: file for n in part})
    main_json, extra_json = tokenizer()
    files = {"config.json": c, "tokenizer.json": main_json, "tokenizer_config.json": extra_json}
    if args.shards > 1:
        files["model.safetensors.index.json"] = dict(weight_map=index)
    for name, value in files.items():
        with open(os.path.join(args.out, name), "w", encoding="utf-8") as f:
            json.dump(value, f, ensure_ascii=False)


if __name__ == "__main__":
    main()
