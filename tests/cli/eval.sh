#!/usr/bin/env bash
# eval, run and bench on TINY: the JSON contract, and the texts and files that must be refused (bad-inputs K13).
source "$HT_SOURCE/tests/cli/lib.sh"
python3 "$HT_SOURCE/tests/cli/make_tiny.py" tiny >/dev/null
"$HALFTONE" quantize tiny -t Q8_0 -t Q4_K_M -t F16 -o 'tiny-{type}.gguf' --quiet >/dev/null || fail "quantize"
head -c 6000 "$HT_SOURCE/README.md" >text.txt
gzip -k text.txt

# --- the contract -----------------------------------------------------------------------------------------------------------------
expect 0 -- "$HALFTONE" eval tiny-Q8_0.gguf tiny-Q4_K_M.gguf tiny-F16.gguf --base tiny --text text.txt --ctx 64 --chunks 6 --json
cp out.txt eval.json
expect 0 -- "$HALFTONE" eval tiny-Q8_0.gguf --base tiny --text text.txt.gz --ctx 64 --chunks 6 --json --threads 1
cp out.txt gz.json
expect 0 -- "$HALFTONE" eval tiny-Q8_0.gguf --text text.txt --ctx 64 --chunks 6 --json --compute fast
cp out.txt fast.json
python3 - <<'PY' || fail "eval's JSON"
import json
d, gz, fast = (json.load(open(n + ".json")) for n in ("eval", "gz", "fast"))
assert d["schema"] == "halftone.eval/1" and d["compute"] == "exact" and fast["compute"] == "fast"
assert d["text"]["n_chunks"] == 6 and d["text"]["ctx"] == 64 and d["text"]["n_tokens"] > 384 and len(d["text"]["sha256"]) == 64
keys = "file type n_bytes bits_per_weight perplexity perplexity_stderr kl_mean kl_median kl_p99 kl_p999 kl_max same_top1 rms_dp wall_s tokens_per_s".split()
q8, q4, f16 = d["files"]
for f in d["files"]:
    assert all(f[k] is not None for k in keys), f
    assert f["kl_median"] <= f["kl_p99"] <= f["kl_p999"] <= f["kl_max"] and 0 <= f["same_top1"] <= 1
assert f16["kl_mean"] < q8["kl_mean"] < q4["kl_mean"], "fewer bits must diverge more"
assert f16["kl_mean"] < 1e-6 and abs(f16["perplexity"] / d["base"]["perplexity"] - 1) < 1e-3
assert "kl_mean" not in fast["files"][0] and abs(fast["files"][0]["perplexity"] / q8["perplexity"] - 1) < 0.02
# gzip or plain, one thread or two: the same numbers
assert gz["text"]["sha256"] == d["text"]["sha256"]
for k in ("perplexity", "kl_mean", "kl_max"):
    assert gz["files"][0][k] == q8[k], k
PY

# --- K13 70: too little text; one chunk has no error bar -------------------------------------------------------------------------------
: >empty.txt
printf 'a b c d e f g h' >short.txt
refused 3 '0 tokens' -- "$HALFTONE" eval tiny-Q8_0.gguf --text empty.txt --ctx 64
refused 3 'one chunk needs 64' -- "$HALFTONE" eval tiny-Q8_0.gguf --text short.txt --ctx 64
refused 3 '9999 chunks' -- "$HALFTONE" eval tiny-Q8_0.gguf --text text.txt --ctx 64 --chunks 9999
expect 0 -- "$HALFTONE" eval tiny-Q8_0.gguf --text text.txt --ctx 64 --chunks 1
grep -qi 'nan' out.txt && fail "one chunk prints nan"
python3 -c 'print("a" * 4000)' >same.txt
expect 0 -- "$HALFTONE" eval tiny-Q8_0.gguf --text same.txt --ctx 64 --chunks 2 --json
python3 -c 'import json; json.load(open("out.txt"), parse_constant=lambda c: exit(f"JSON has {c}"))' || fail "non-finite JSON"

# --- K13 71: the first non-finite prediction stops the run ---------------------------------------------------------------------------------
cp tiny-Q8_0.gguf nan.gguf
offset=$("$HALFTONE" inspect nan.gguf --json | python3 -c '
import json, sys
d = json.load(sys.stdin)
print(next(t["offset_bytes"] for t in d["tensors"] if t["name"] == "blk.1.ffn_down.weight"))')
printf '\x00\x7e' | dd of=nan.gguf bs=1 seek="$offset" conv=notrunc status=none
refused 3 'nan.gguf' 'not finite|non-finite' -- "$HALFTONE" eval nan.gguf --text text.txt --ctx 64 --chunks 2
expect 1 'blk.1.ffn_down.weight' -- "$HALFTONE" verify nan.gguf

# --- misuse, and models that cannot be compared -----------------------------------------------------------------------------------------------
refused 2 '\-\-text' -- "$HALFTONE" eval tiny-Q8_0.gguf
refused 2 'exact or fast' -- "$HALFTONE" eval tiny-Q8_0.gguf --text text.txt --compute quick
refused 2 'f16 or f32' -- "$HALFTONE" eval tiny-Q8_0.gguf --text text.txt --kv q9
refused 4 'cannot open' -- "$HALFTONE" eval tiny-Q8_0.gguf --text nothere.txt
refused 4 'cannot open' -- "$HALFTONE" eval nothere.gguf --text text.txt

# --- run and bench ----------------------------------------------------------------------------------------------------------------------------------
expect 0 -- "$HALFTONE" run tiny-F16.gguf -p 'the and' -n 5 --json --ignore-eos
cp out.txt a.json
expect 0 -- "$HALFTONE" run tiny-F16.gguf --prompt-ids "$(python3 -c 'import json; print(*json.load(open("a.json"))["prompt_ids"], sep=",")')" -n 5 --json --ignore-eos --threads 1
cp out.txt b.json
expect 0 -- "$HALFTONE" run tiny-F16.gguf -p 'the and' -n 20 --temp 1 --seed 3 --ignore-eos --json
cp out.txt c.json
expect 0 -- "$HALFTONE" run tiny-F16.gguf -p 'the and' -n 20 --temp 1 --seed 3 --ignore-eos --json
cmp -s out.txt c.json || fail "the same seed gave another text"
python3 - <<'PY' || fail "run's JSON"
import json, math
a, b = json.load(open("a.json")), json.load(open("b.json"))
assert a["token_ids"] == b["token_ids"] and len(a["token_ids"]) == 5 and a["next_top"] == b["next_top"] and len(a["next_top"]) == 20
assert a["token_ids"][0] == a["next_top"][0]["id"]
assert sum(math.exp(t["logprob"]) for t in a["next_top"]) <= 1.000001
PY
refused 2 'give one of' -- "$HALFTONE" run tiny-F16.gguf
refused 2 'prompt-ids' -- "$HALFTONE" run tiny-F16.gguf --prompt-ids 1,99999
expect 0 -- "$HALFTONE" bench tiny-Q8_0.gguf tiny-Q4_K_M.gguf --prompt 32 --gen 8 --repeat 2 --json
python3 - <<'PY' || fail "bench's JSON"
import json
d = json.load(open("out.txt"))
keys = "file isa threads prompt_tokens_per_s decode_tokens_per_s ttft_ms time_per_token_ms bytes_per_token bandwidth_share".split()
assert d["schema"] == "halftone.bench/1" and len(d["files"]) == 2
for f in d["files"]:
    assert all(f[k] is not None for k in keys) and f["decode_tokens_per_s"] > 0, f
PY
finish
