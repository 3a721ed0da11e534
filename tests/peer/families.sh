#!/usr/bin/env bash
# Random small checkpoints of every family and switch: our logits equal a double-precision reference, and stock llama.cpp's on the same files.
. "$HT_SOURCE/tests/real/prepare.sh"
need_python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" "$HT_SOURCE/tests/peer/family_reference.py" "$HALFTONE" "$work"
# The window of Mistral is left out: llama.cpp ignores it in the llama family.
"$python" "$real/check_witness.py" "$HALFTONE" 0.02 "$work/llama-bias.gguf" 0.02 "$work/llama3-rope.gguf" 0.02 "$work/llama-yarn.gguf" \
  0.02 "$work/qwen2.gguf" 0.02 "$work/qwen2-yarn.gguf" 0.02 "$work/qwen3-head64.gguf"
