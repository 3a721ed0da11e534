#!/usr/bin/env bash
# quantize and convert from the command line: what is written, what is refused, and that refusals leave the folder as it was.
source "$HT_SOURCE/tests/cli/lib.sh"
make_tiny() { python3 "$HT_SOURCE/tests/cli/make_tiny.py" "$@" >/dev/null; }
make_tiny tiny

# --- the plan and the file agree to the byte; several types share one read ------------------------------------------------------
expect 0 'dry run: nothing written' 'model.layers.0.self_attn.q_proj.weight' 'permute' -- "$HALFTONE" quantize tiny -t Q4_K_M -o '{name}-{type}.gguf' --dry-run
[ ! -e tiny-Q4_K_M.gguf ] || fail "a dry run wrote a file"
expect 0 -- "$HALFTONE" quantize tiny -t Q4_K_M -t Q8_0 -o '{name}-{type}.gguf' --json
cp out.txt result.json
python3 - <<'PY' || fail "the JSON does not describe the files"
import json, os
d = json.load(open("result.json"))
assert d["schema"] == "halftone.quantize/1" and [o["type"] for o in d["outputs"]] == ["Q4_K_M", "Q8_0"]
for o in d["outputs"]:
    assert os.path.getsize(o["file"]) == o["n_bytes"], o["file"]
    assert all({"name", "type", "method", "n_bytes", "fallback_from"} <= set(t) for t in o["tensors"])
assert d["wall_s"] >= 0 and d["peak_rss_bytes"] > 0
PY
expect 0 -- "$HALFTONE" verify tiny-Q4_K_M.gguf
expect 0 -- "$HALFTONE" convert tiny -o tiny-F16.gguf
expect 0 -- "$HALFTONE" convert tiny-F16.gguf -t auto -o again.gguf
cmp <("$HALFTONE" inspect tiny-F16.gguf --json | python3 -c 'import json,sys; print([(t["name"],t["type"]) for t in json.load(sys.stdin)["tensors"]])') \
    <("$HALFTONE" inspect again.gguf --json | python3 -c 'import json,sys; print([(t["name"],t["type"]) for t in json.load(sys.stdin)["tensors"]])') ||
  fail "auto changed a type"

# --- K12 64: the output's place is checked first ---------------------------------------------------------------------------------
refused 4 'nodir' 'does not exist' -- "$HALFTONE" quantize tiny -t Q8_0 -o nodir/x.gguf
mkdir folder.gguf
refused 3 'folder.gguf' 'is a folder' -- "$HALFTONE" quantize tiny -t Q8_0 -o folder.gguf
refused 3 'exists already' -- "$HALFTONE" quantize tiny -t Q8_0 -o tiny-Q8_0.gguf
before=$(sha256sum <tiny-Q8_0.gguf)
[ "$before" = "$(sha256sum <tiny-Q8_0.gguf)" ] || fail "a refused run changed the existing file"
expect 0 -- "$HALFTONE" quantize tiny -t Q8_0 -o tiny-Q8_0.gguf --force
[ "$before" = "$(sha256sum <tiny-Q8_0.gguf)" ] || fail "the same input gave other bytes"

# --- K12 65: wrong arguments cost nothing ----------------------------------------------------------------------------------------
refused 2 'Q5_K_X' 'Q5_K_M' -- "$HALFTONE" quantize tiny -t Q5_K_X -o x.gguf
refused 2 'REGEX=TYPE' -- "$HALFTONE" quantize tiny -t Q8_0 -o x.gguf --tensor-type attn_v
refused 3 'no_such' 'matches no tensor' -- "$HALFTONE" quantize tiny -t Q8_0 -o x.gguf --tensor-type no_such=Q8_0
refused 3 'pattern' 'not valid' -- "$HALFTONE" quantize tiny -t Q8_0 -o x.gguf --tensor-type '(=Q8_0'
refused 2 'threads' -- "$HALFTONE" quantize tiny -t Q8_0 -o x.gguf --threads 0
refused 2 'threads' -- "$HALFTONE" quantize tiny -t Q8_0 -o x.gguf --threads -1
refused 2 'threads' -- "$HALFTONE" quantize tiny -t Q8_0 -o x.gguf --threads two
refused 2 '\-t TYPE is missing' -- "$HALFTONE" quantize tiny -o x.gguf
refused 2 '\-o OUT is missing' -- "$HALFTONE" quantize tiny -t Q8_0
refused 2 'unknown option' -- "$HALFTONE" quantize tiny -t Q8_0 -o x.gguf --swift
refused 2 '\-\-fast .* \-\-calib' -- "$HALFTONE" quantize tiny -t Q8_0 -o x.gguf --fast
refused 2 '\-\-memory .* \-\-calib' -- "$HALFTONE" quantize tiny -t Q8_0 -o x.gguf --memory 1G
refused 2 'put \{type\} into -o' -- "$HALFTONE" quantize tiny -t Q8_0 -t Q4_0 -o x.gguf
refused 3 'does not write' -- "$HALFTONE" quantize tiny -t IQ2_XS -o x.gguf
refused 3 'requantize' -- "$HALFTONE" quantize tiny-Q8_0.gguf -t Q4_0 -o x.gguf
refused 4 'cannot open' -- "$HALFTONE" quantize absent.gguf -t Q4_0 -o x.gguf

# --- K12 62: a full disk ------------------------------------------------------------------------------------------------------------
ulimited() { (ulimit -f 64; "$@"); }
refused 4 'write failed' 'File too large' -- ulimited "$HALFTONE" quantize tiny -t F16 -o big.gguf --threads 1

# --- K12 68: names that are not ASCII --------------------------------------------------------------------------------------------------
strange=$'\xd0\xbc\xd0\xbe\xd0\xb4\xd0\xb5\xd0\xbb\xd1\x8c_\xd1\x82\xd0\xb5\xd1\x81\xd1\x82 \xc3\xa9'
mkdir "$strange"
cp -r tiny "$strange/"$'\xf0\x9f\x92\xbe in'
expect 0 -- "$HALFTONE" quantize "$strange/"$'\xf0\x9f\x92\xbe in' -t Q8_0 -o "$strange/{name}.gguf"
[ -e "$strange/"$'\xf0\x9f\x92\xbe in.gguf' ] || fail "the file with a strange name is missing"
expect 0 -- "$HALFTONE" quantize tiny -t Q8_0 -o $'new\nline \xff.gguf' --json
python3 -c 'import json; json.load(open("out.txt"))' || fail "a strange name broke the JSON"

# --- K5 30, K4: bad checkpoints leave nothing -----------------------------------------------------------------------------------------
make_tiny nan --value model.layers.0.mlp.down_proj.weight,3,17,nan
refused 3 'blk.0.ffn_down.weight' 'row 3, column 17' -- "$HALFTONE" quantize nan -t Q4_0 -o x.gguf
make_tiny inf --value model.layers.0.mlp.down_proj.weight,3,17,inf
refused 3 'blk.0.ffn_down.weight' 'row 3, column 17' -- "$HALFTONE" quantize inf -t auto -o x.gguf
make_tiny missing --drop model.layers.1.self_attn.k_proj.weight
refused 3 'k_proj' -- "$HALFTONE" quantize missing -t Q4_0 -o x.gguf
make_tiny shards --shards 3
rm shards/model-00002-of-00003.safetensors
refused '[34]' 'model-00002-of-00003.safetensors' -- "$HALFTONE" quantize shards -t Q4_0 -o x.gguf
make_tiny family --set 'architectures=["BananaForCausalLM"]'
refused 3 'BananaForCausalLM' -- "$HALFTONE" quantize family -t Q4_0 -o x.gguf
head -c 300000 tiny/model.safetensors >cut.bin
cp -r tiny cut && mv cut.bin cut/model.safetensors
refused 3 'model.safetensors' -- "$HALFTONE" quantize cut -t Q4_0 -o x.gguf
head -c 300000 tiny-F16.gguf >cut.gguf
for command in "quantize -t Q8_0 -o x.gguf" "inspect" "verify"; do
  # shellcheck disable=SC2086
  refused 3 'cut.gguf' 'truncated|need' -- "$HALFTONE" ${command%% *} cut.gguf ${command#"${command%% *}"}
done

# --- Ctrl-C ------------------------------------------------------------------------------------------------------------------------------
make_tiny long --set num_hidden_layers=12 --set intermediate_size=8192
"$HALFTONE" quantize long -t IQ4_XS -o x.gguf --threads 1 --isa scalar >out.txt 2>err.txt &
pid=$!
sleep 0.3
kill -INT $pid
wait $pid
code=$?
if [ "$code" = 0 ]; then echo "note: the run ended before the signal"; else
  [ "$code" = 130 ] || fail "interrupted: exit $code, expected 130"
  [ "$(find . -name 'x.gguf*')" = "" ] || fail "an interrupted run left a file"
fi

# --- help ----------------------------------------------------------------------------------------------------------------------------------
expect 0 'tensor-type' -- "$HALFTONE" help quantize
expect 0 'tensor-type' -- "$HALFTONE" quantize --help
expect 2 'unknown command' -- "$HALFTONE" quantise
finish
