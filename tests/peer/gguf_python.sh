#!/usr/bin/env bash
# The Python gguf package reads what we write and we read what it writes: every metadata type, every plain and some block types, bytes and all.
. "$HT_SOURCE/tests/real/prepare.sh"
need_python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
check=$HT_SOURCE/tests/peer/check_gguf_python.py
"$python" "$check" write "$work/theirs.gguf"
"$HALFTONE" inspect --json --full "$work/theirs.gguf" >"$work/inspect.json"
"$HALFTONE" verify --deep "$work/theirs.gguf"
"$python" "$check" compare-json "$work/theirs.gguf" "$work/inspect.json"
"$HALFTONE" convert "$work/theirs.gguf" -t auto --allow-requantize -o "$work/ours.gguf" >&2
"$HALFTONE" verify --deep "$work/ours.gguf"
"$python" "$check" compare "$work/theirs.gguf" "$work/ours.gguf"
