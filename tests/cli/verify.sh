#!/usr/bin/env bash
# halftone verify: sound files pass, each kind of damage is named with tensor and place, unreadable files are told apart from unsound ones.
source "$HT_SOURCE/tests/cli/lib.sh"
python3 "$HT_SOURCE/tests/cli/gguf_bytes.py" . || exit 1
verify() { "$HALFTONE" verify "$@"; }

expect 0 'good.gguf: sound: 4 tensors' '4 checksums match' 'all scales are finite' -- verify good.gguf
expect 0 'all decoded values are finite' -- verify good.gguf --deep
expect 0 'no checksums in the file' -- verify no_crc.gguf

# --- damage ------------------------------------------------------------------------------------------------------------------
expect 1 'blk.1.ffn_down.weight @ .*CRC-32: expected [0-9a-f]{8}, found' 'not sound: 1 problem$' -- verify flipped_bit.gguf
expect 1 'token_embd.weight @ .*a scale of block 3 \(row 1, column 32\), 2 in all' 'not sound: 1 problem$' -- verify bad_scale.gguf
expect 1 'blk.0.ffn_down.weight @ .*a scale of block 1 \(row 1, column 0\), 1 in all' -- verify bad_dmin.gguf
expect 1 'output_norm.weight @ .*value 9 \(row 0, column 9\), 1 in all' -- verify bad_float.gguf
expect 0 'sound' -- verify overflow.gguf
expect 1 'blk.1.ffn_down.weight @ .*decoded at row 0, column 0, 256 in all' -- verify overflow.gguf --deep
expect 1 'tokenizer.ggml.scores: expected f32 array, found u8 array' 'tokenizer.ggml.scores: expected 5 values, one per token, found 4' \
  'token_embd.weight: 4 rows, but the tokenizer has 5 tokens' 'llama.block_count is 3, but blk.2 has no tensors' \
  'halftone.tensor_crc32: expected 4 values, one per tensor, found 3' 'not sound: 5 problems' -- verify bad_metadata.gguf

# The damaged byte is where the message says.
expect 1 -- verify --json bad_scale.gguf
cp out.txt report.json
python3 - <<'PY' || fail "the JSON does not describe the damage"
import json
report = json.load(open("report.json"))
assert report["schema"] == "halftone.verify/1" and report["sound"] is False and report["n_checksums"] == 0
(problem,) = report["problems"]
assert problem["kind"] == "scale" and problem["tensor"] == "token_embd.weight"
assert open("bad_scale.gguf", "rb").read()[problem["offset_bytes"]:][:2] == b"\x00\x7e"
PY
for threads in 1 4; do verify --threads $threads bad_metadata.gguf >"threads.$threads"; done
cmp threads.1 threads.4 || fail "the report depends on the number of threads"

# --- not readable, by any command (K1 9) -----------------------------------------------------------------------------------------
for command in verify inspect "convert -o x.gguf" "quantize -t Q8_0 -o x.gguf"; do
  refused 3 'output_norm.weight @ .*truncated: need 256 bytes, the file has 191 \(bounds\)' -- "$HALFTONE" $command cut.gguf
  refused 3 'trailing data after the tensor section' -- "$HALFTONE" $command joined.gguf
done
expect 4 'nothing.gguf: cannot open' -- verify nothing.gguf
expect 2 'see: halftone help verify' -- verify

# --- split files (K15) -------------------------------------------------------------------------------------------------------------
for part in 1 2 3; do expect 0 'sound: 3 tensors' -- verify split-0000$part-of-00003.gguf; done
expect 0 '^t2 +Q8_0 +32 +34 +[0-9]+ in part 3$' -- "$HALFTONE" inspect split-00002-of-00003.gguf
expect 0 -- "$HALFTONE" convert split-00001-of-00003.gguf -t auto -o one.gguf
expect 0 'sound: 3 tensors' -- verify one.gguf
"$HALFTONE" inspect one.gguf | grep -qF split. && fail "split keys are in a file that is not split"
rm split-00003-of-00003.gguf
for command in verify inspect "convert -o x.gguf"; do
  refused 3 'split-00003-of-00003.gguf: part 3 of 3 is missing' -- "$HALFTONE" $command split-00001-of-00003.gguf
done
finish
