#!/usr/bin/env bash
# halftone inspect: facts, metadata, tensors and totals of a GGUF, as text and as JSON.
set -euo pipefail
command -v python3 >/dev/null || { echo "python3 is needed to build the files"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$HT_SOURCE/tests/cli/gguf_bytes.py" "$work"
cd "$work"

"$HALFTONE" inspect good.gguf >out
for text in "format     GGUF 3, alignment 32, 1 file" "model      llama, Tiny é\\x0a" "file type  Q8_0" \
  'string[4]      "a", "b", ""c", "\xff"' "0, 1, 2, 3, 4, 5, 6, 7, …" "256 x 2                         288" "4.5000" "Q8_0            1              256"; do
  grep -qF -- "$text" out || { echo "no \"$text\" in:"; cat out; exit 1; }
done
"$HALFTONE" inspect --full good.gguf | grep -qF "17, 18, 19"
"$HALFTONE" inspect split-00002-of-00003.gguf | grep -qE "^t2 +Q8_0 +32 +34 +[0-9]+ in part 3$"
"$HALFTONE" inspect --json good.gguf >report.json
python3 - <<'PY'
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
code=0
"$HALFTONE" inspect cut.gguf 2>err || code=$?
[ $code = 3 ] && grep -qF "output_norm.weight" err
