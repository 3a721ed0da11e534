#!/usr/bin/env bash
# halftone inspect: facts, metadata, tensors and totals of a GGUF and of a checkpoint, as text and as JSON.
source "$HT_SOURCE/tests/cli/lib.sh"
python3 "$HT_SOURCE/tests/cli/gguf_bytes.py" . || exit 1
python3 "$HT_SOURCE/tests/cli/make_tiny.py" tiny >/dev/null || exit 1

expect 0 'format     GGUF 3, alignment 32, 1 file' 'model      llama, Tiny é\\x0a' 'file type  Q8_0' 'string\[4\] +"a", "b", ""c", "\\xff"$' \
  '0, 1, 2, 3, 4, 5, 6, 7, …$' '^blk.0.ffn_down.weight +Q4_K +256 x 2 +288 ' '^Q4_K +1 +512 +288 +4.5000' -- "$HALFTONE" inspect good.gguf
expect 0 '17, 18, 19$' -- "$HALFTONE" inspect --full good.gguf
expect 0 -- "$HALFTONE" inspect --json good.gguf
cp out.txt report.json
python3 - <<'PY' || fail "the JSON does not describe the file"
import json
report = json.load(open("report.json"))
assert report["schema"] == "halftone.inspect/1" and report["architecture"] == "llama" and report["name"] == "Tiny \u00e9\n"
assert report["file_type"] == "Q8_0" and report["n_tensors"] == 4 and report["n_elems"] == 256 + 512 + 128 + 64
assert report["n_bytes"] == 8 * 34 + 288 + 256 + 256
assert abs(report["bits_per_weight"] - 8 * report["n_bytes"] / report["n_elems"]) < 1e-12
pairs = {pair["key"]: pair for pair in report["metadata"]}
assert pairs["many"]["values"] == list(range(8)) and pairs["many"]["n_values"] == 20 and pairs["many"]["shortened"]
assert pairs["tokenizer.ggml.tokens"]["values"] == ["a", "b", "\"c", "\\xff"]
raw = open("good.gguf", "rb").read()
for tensor in report["tensors"]:
    assert tensor["offset_bytes"] + tensor["n_bytes"] <= len(raw)
norm = report["tensors"][3]
assert raw[norm["offset_bytes"]:][:4] == b"\x00\x00\x80\x3f" and norm["shape"] == [64]
PY

# --- a checkpoint, shown as the GGUF it would become -------------------------------------------------------------------------------
expect 0 'format     Hugging Face checkpoint' 'llama.block_count +u32 +2$' \
  '^blk.1.attn_k.weight +BF16 +256 x 64 +32768 model.layers.1.self_attn.k_proj.weight$' -- "$HALFTONE" inspect tiny
expect 0 '"format":.*"hf"' '"origin":.*"lm_head.weight"' -- "$HALFTONE" inspect --json tiny/model.safetensors
finish
