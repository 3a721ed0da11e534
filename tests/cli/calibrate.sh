#!/usr/bin/env bash
# calibrate, and quantize with statistics: the whole way on the bundled model; the same bytes for any thread count and after kill -9; what is refused.
source "$HT_SOURCE/tests/cli/lib.sh"
tiny=$HT_SOURCE/data/tiny text=$HT_SOURCE/data/calib.txt

# --- statistics: the same bytes for 1 and 2 threads, and after a run that was killed ------------------------------------------------
expect 0 'tokens fitted' -- "$HALFTONE" calibrate "$tiny" --calib "$text" --chunks 8 --held-out 4 --threads 2 -o two.gguf
expect 0 -- "$HALFTONE" calibrate "$tiny" --calib "$text" --chunks 8 --held-out 4 --threads 1 -o one.gguf
cmp two.gguf one.gguf || fail "statistics depend on the thread count"
[ ! -e two.gguf.work ] || fail "the work folder stayed"
for _ in 1 2 3; do
  "$HALFTONE" calibrate "$tiny" --calib "$text" --chunks 8 --held-out 4 --threads 1 -o killed.gguf --resume >/dev/null 2>&1 & sleep 0.6
  kill -9 $! 2>/dev/null; wait $! 2>/dev/null
done
[ ! -e killed.gguf ] || echo "note: the run was faster than the kill" >&2
expect 0 -- "$HALFTONE" calibrate "$tiny" --calib "$text" --chunks 8 --held-out 4 --threads 1 -o killed.gguf --resume --force --json
cmp killed.gguf one.gguf || fail "statistics of a resumed run differ"
mkdir -p other.gguf.work && cp -r one.gguf other.gguf.work/x_0 && printf 'version 0\n' >other.gguf.work/key
expect 3 'another task' -- "$HALFTONE" calibrate "$tiny" --calib "$text" --chunks 8 -o other.gguf --resume
rm -rf other.gguf.work
expect 0 -- "$HALFTONE" calibrate "$tiny" --calib "$text" --chunks 4 --hessian plain -o plain.gguf
expect 0 -- "$HALFTONE" calibrate "$tiny" --calib "$text" --chunks 4 --hessian none -o none.gguf
expect 0 'self' -- "$HALFTONE" calibrate "$tiny" --calib self --chunks 2 --ctx 64 -o self.gguf
expect 0 -- "$HALFTONE" calibrate --merge none.gguf self.gguf -o merged.dat

# --- files: same bytes for any thread count; every method; verify -----------------------------------------------------------------
for method in imatrix gptq awq awq+gptq auto; do
  expect 0 -- "$HALFTONE" quantize "$tiny" --stats one.gguf --method $method --threads 1 -t Q4_K_M -o a-$method.gguf
  expect 0 -- "$HALFTONE" quantize "$tiny" --stats one.gguf --method $method --threads 2 -t Q4_K_M -o b-$method.gguf
  cmp a-$method.gguf b-$method.gguf || fail "$method depends on the thread count"
  expect 0 -- "$HALFTONE" verify a-$method.gguf
done
expect 0 -- "$HALFTONE" quantize "$tiny" --stats merged.dat --method imatrix -t Q3_K_M -o dat.gguf
expect 0 -- "$HALFTONE" quantize "$tiny" --stats plain.gguf --method gptq -t Q2_K -o plain-q2.gguf
expect 0 -- "$HALFTONE" quantize "$tiny" --stats one.gguf -t Q4_K_M+ -t Q3_K_M+ -t Q4_K_M -o 'mix-{type}.gguf' --write-recipe mix.json
expect 0 -- "$HALFTONE" quantize "$tiny" --stats one.gguf -t Q4_K_M+ --recipe mix.json -o again.gguf
cmp mix-Q4_K_M+.gguf again.gguf || fail "the recipe does not give the same file"
python3 - <<'PY' || fail "the mix is not within half a percent under the plain recipe's size"
import os
for t in ("Q4_K_M",):
    plain, mix = os.path.getsize(f"mix-{t}.gguf"), os.path.getsize(f"mix-{t}+.gguf")
    assert 0.995 * plain <= mix <= plain, (plain, mix)
PY
expect 0 -- "$HALFTONE" quantize "$tiny" --stats one.gguf -t Q4_K_M --target-bpw 5.0 -o bpw.gguf --json
python3 -c 'import json; b = json.load(open("out.txt"))["outputs"][0]["bits_per_weight"]; assert 4.97 <= b <= 5.0, b' || fail "--target-bpw is missed"
expect 0 -- "$HALFTONE" quantize "$tiny" --stats one.gguf -t Q4_K_M --target-size 3.4MB -o size.gguf
[ "$(stat -c %s size.gguf)" -le 3400000 ] && [ "$(stat -c %s size.gguf)" -ge 3383000 ] || fail "--target-size is missed: $(stat -c %s size.gguf)"
expect 0 -- "$HALFTONE" quantize "$tiny" --calib "$text" --chunks 4 -t Q4_0 -o direct.gguf
[ -z "$(find . -name '*.stats.tmp*')" ] || fail "statistics of a run stayed"

# --- rounding goes on after kill -9, with the same bytes, whatever became of the .part file ------------------------------------------
killed() { # what an interrupted run leaves
  rm -f k-*
  "$HALFTONE" quantize "$tiny" --stats one.gguf --method gptq --threads 1 -t Q4_K_M -t Q3_K_M -o 'k-{type}.gguf' >/dev/null 2>&1 &
  for _ in $(seq 1000); do
    [ "$(stat -c %s k-Q4_K_M.gguf.journal 2>/dev/null || echo 0)" -ge 8000 ] && break
    sleep 0.02
  done
  kill -9 $! || fail "the run ended before it could be killed"
  wait $! 2>/dev/null
}
killed
expect 0 'tensors were finished by an earlier run' -- "$HALFTONE" quantize "$tiny" --stats one.gguf --method gptq --threads 2 -t Q4_K_M -t Q3_K_M -o 'k-{type}.gguf' --resume
cmp k-Q4_K_M.gguf a-gptq.gguf || fail "a resumed file differs"
[ -z "$(find . -name 'k-*.part' -o -name 'k-*.journal')" ] || fail "a finished run left its journal"
killed
python3 -c 'import os; f = open("k-Q4_K_M.gguf.part", "r+b"); f.seek(os.path.getsize("k-Q4_K_M.gguf.part") // 8 * 7); f.write(bytes(400000))'
expect 0 -- "$HALFTONE" quantize "$tiny" --stats one.gguf --method gptq -t Q4_K_M -t Q3_K_M -o 'k-{type}.gguf' --resume
cmp k-Q4_K_M.gguf a-gptq.gguf || fail "damage in the .part file went unnoticed"
killed
expect 3 'another task' -- "$HALFTONE" quantize "$tiny" --stats one.gguf --method awq+gptq -t Q4_K_M -t Q3_K_M -o 'k-{type}.gguf' --resume
[ -e k-Q4_K_M.gguf.part ] && [ -e k-Q4_K_M.gguf.journal ] || fail "what another task left was removed"
expect 0 -- "$HALFTONE" quantize "$tiny" --stats one.gguf --method gptq -t Q4_K_M -t Q3_K_M -o 'k-{type}.gguf'
cmp k-Q4_K_M.gguf a-gptq.gguf || fail "without --resume what was left is not ignored"

# --- better than rounding without statistics: KL divergence on held-out text ------------------------------------------------------------
expect 0 -- "$HALFTONE" quantize "$tiny" -t Q4_K_M -o rtn.gguf
expect 0 -- "$HALFTONE" eval --base "$tiny" rtn.gguf a-auto.gguf mix-Q4_K_M+.gguf --text "$HT_SOURCE/data/heldout.txt" --chunks 8 --json
python3 - <<'PY' || fail "calibration does not help"
import json
kl = [f["kl_mean"] for f in json.load(open("out.txt"))["files"] if f.get("kl_mean") is not None]
print("KL divergence: rtn %.5f auto %.5f mix %.5f" % tuple(kl[-3:]))
assert kl[-2] < 0.9 * kl[-3] and kl[-1] < 0.9 * kl[-3], kl
PY

# --- without gradients: sensitivities by trying; and what estimates are worth: one matrix rounded, estimated and measured on the same tokens ---------------------
expect 0 -- "$HALFTONE" calibrate "$tiny" --calib "$text" --chunks 8 --held-out 4 --threads 2 --fast -o fast.gguf
expect 0 -- "$HALFTONE" calibrate "$tiny" --calib "$text" --chunks 8 --held-out 4 --threads 1 --fast -o fast1.gguf
cmp fast.gguf fast1.gguf || fail "probes depend on the thread count"
expect 0 -- "$HALFTONE" quantize "$tiny" --stats fast.gguf --method imatrix -t Q3_K_M -t Q3_K_M+ -o 'fast-{type}.gguf'
expect 0 -- "$HALFTONE" quantize "$tiny" --stats one.gguf --method imatrix -t Q3_K_M+ -o 'guided-{type}.gguf'
expect 0 -- "$HALFTONE" eval --base "$tiny" fast-Q3_K_M.gguf fast-Q3_K_M+.gguf guided-Q3_K_M+.gguf --text "$HT_SOURCE/data/heldout.txt" --chunks 8 --json
python3 - <<'PY' || fail "a mix from probes does not help"
import json
kl = [f["kl_mean"] for f in json.load(open("out.txt"))["files"]][-3:]
print("KL divergence: Q3_K_M %.5f, mix from probes %.5f, from gradients %.5f" % tuple(kl))
assert kl[1] < kl[0] and kl[2] < kl[0], kl
PY
for stats in one fast; do
  for tensor in blk.0.attn_v blk.1.ffn_down blk.2.ffn_gate blk.3.attn_q token_embd; do
    expect 0 -- "$HALFTONE" quantize "$tiny" --stats $stats.gguf --method auto -t F16 --tensor-type "$tensor=Q2_K" -o single.gguf --force --json
    python3 - $stats $tensor <<'PY' || fail "the estimate for $tensor from $stats is far from what is measured"
import json, sys
out = json.load(open("out.txt"))["outputs"][0]
cost, kl = sum(t["cost_held_out"] or 0 for t in out["tensors"]), out["held_out"]["kl_mean"]
print("%s %-14s estimated %.6f, measured %.6f" % (*sys.argv[1:], cost, kl))
off = 2.5 if sys.argv[1] == 'one' else 5.0
assert kl / off < cost < kl * off
PY
  done
done
expect 0 'measured on .* held-out tokens' -- "$HALFTONE" quantize "$tiny" --stats one.gguf -t Q4_0 -o chosen.gguf
[ -z "$(find . -name '*.rival*')" ] || fail "a rival file stayed"
expect 0 -- "$HALFTONE" quantize "$tiny" --stats one.gguf -t Q3_K_M+ --prefer-fast -o fastmix.gguf
grep -q 'prefer-fast costs' err.txt || fail "--prefer-fast does not say what it costs"

# Hidden states on disk make the same file.
expect 0 -- "$HALFTONE" calibrate "$tiny" --calib "$text" --chunks 8 --held-out 4 --memory 100kB -o spilled.gguf
cmp spilled.gguf one.gguf || fail "statistics depend on where the hidden states lie"
refused 2 'memory' -- "$HALFTONE" calibrate "$tiny" --calib "$text" --chunks 8 --memory lots -o x.gguf
expect 0 -- "$HALFTONE" quantize "$tiny" --stats one.gguf --method imatrix --strict-coverage -t Q4_0 -o strict.gguf

# --- refused -----------------------------------------------------------------------------------------------------------------------------
printf 'tiny' >short.txt
refused 3 'short.txt' 'fewer than one chunk' -- "$HALFTONE" calibrate "$tiny" --calib short.txt -o x.gguf
refused 2 'calib TEXT' -- "$HALFTONE" calibrate "$tiny" -o x.gguf
refused 2 'needs --stats' -- "$HALFTONE" quantize "$tiny" -t Q4_K_M --method gptq -o x.gguf
refused 2 'needs --stats' -- "$HALFTONE" quantize "$tiny" -t Q4_K_M+ -o x.gguf
refused 2 'not a size' -- "$HALFTONE" quantize "$tiny" --stats one.gguf -t Q4_K_M --target-size much -o x.gguf
refused 3 'smallest types need' -- "$HALFTONE" quantize "$tiny" --stats one.gguf -t Q4_K_M --target-bpw 1.5 -o x.gguf
refused 3 'needs statistics that compare tensors' -- "$HALFTONE" quantize "$tiny" --stats plain.gguf -t Q4_K_M+ -o x.gguf
refused 3 'holds no statistics' -- "$HALFTONE" quantize "$tiny" --stats rtn.gguf -t Q4_K_M -o x.gguf
python3 "$HT_SOURCE/tests/cli/make_tiny.py" other >/dev/null
refused 3 'not of this model' -- "$HALFTONE" quantize other --stats one.gguf -t Q4_K_M -o x.gguf
finish
