#!/usr/bin/env bash
# halftone verify: sound files pass, each kind of damage is named with tensor and place, unreadable files are told apart from unsound ones.
set -euo pipefail
command -v python3 >/dev/null || { echo "python3 is needed to build the files"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$HT_SOURCE/tests/cli/gguf_bytes.py" "$work"
cd "$work"

expect() { # EXIT_CODE TEXT... -- ARGUMENTS OF VERIFY...
  local want=$1 got=0 texts=()
  shift
  while [ "$1" != -- ]; do texts+=("$1"); shift; done
  shift
  "$HALFTONE" verify "$@" >out 2>&1 || got=$?
  [ "$got" = "$want" ] || { echo "verify $*: exit $got, expected $want"; cat out; exit 1; }
  for text in "${texts[@]}"; do
    grep -qF -- "$text" out || { echo "verify $*: no \"$text\" in:"; cat out; exit 1; }
  done
}

expect 0 "good.gguf: sound: 4 tensors" "4 checksums match" "all scales are finite" -- good.gguf
expect 0 "all decoded values are finite" -- good.gguf --deep
expect 0 "no checksums in the file" -- no_crc.gguf
expect 1 "blk.1.ffn_down.weight @" "CRC-32: expected" "not sound: 1 problem" -- flipped_bit.gguf
expect 1 "token_embd.weight @" "NaN or Inf in a scale of block 3 (row 1, column 32), 2 in all" "not sound: 1 problem" -- bad_scale.gguf
expect 1 "blk.0.ffn_down.weight @" "NaN or Inf in a scale of block 1 (row 1, column 0), 1 in all" -- bad_dmin.gguf
expect 1 "output_norm.weight @" "NaN or Inf in value 9 (row 0, column 9), 1 in all" -- bad_float.gguf
expect 0 "sound" -- overflow.gguf
expect 1 "blk.1.ffn_down.weight @" "NaN or Inf decoded at row 0, column 0, 256 in all" -- overflow.gguf --deep
expect 1 "tokenizer.ggml.scores: expected f32 array, found u8 array" "tokenizer.ggml.scores: expected 5 values, one per token, found 4" \
  "token_embd.weight: 4 rows, but the tokenizer has 5 tokens" "llama.block_count is 3, but blk.2 has no tensors" \
  "halftone.tensor_crc32: expected 4 values, one per tensor, found 3" "not sound: 5 problems" -- bad_metadata.gguf
expect 3 "output_norm.weight @" "truncated: need 256 bytes, the file has 191 (bounds)" -- cut.gguf
expect 3 "trailing data after the tensor section" -- joined.gguf
expect 0 "sound: 3 tensors" -- split-00002-of-00003.gguf
expect 4 "nothing.gguf: cannot open" -- nothing.gguf
expect 2 "see: halftone help verify" -- 

# The damaged byte is where the message says: block 3 of 34 bytes after the start of the data section.
"$HALFTONE" verify --json bad_scale.gguf >report.json && exit 1
python3 - <<'PY'
import json
report = json.load(open("report.json"))
assert report["schema"] == "halftone.verify/1" and report["sound"] is False and report["n_checksums"] == 0
(problem,) = report["problems"]
assert problem["kind"] == "scale" and problem["tensor"] == "token_embd.weight"
assert open("bad_scale.gguf", "rb").read()[problem["offset_bytes"]:][:2] == b"\x00\x7e"
PY

rm split-00003-of-00003.gguf
expect 3 "split-00003-of-00003.gguf: part 3 of 3 is missing" -- split-00001-of-00003.gguf
for threads in 1 4; do "$HALFTONE" verify --threads $threads bad_metadata.gguf >"threads.$threads" || true; done
cmp threads.1 threads.4
