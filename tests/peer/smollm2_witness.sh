#!/usr/bin/env bash
# Stock llama.cpp loads every file we write from a real checkpoint and agrees with us on tokens and probabilities.
. "$HT_SOURCE/tests/real/prepare.sh"
need_python
need_smollm2
need_files smollm2 "$smollm2"
"$python" "$real/check_witness.py" "$HALFTONE" \
  0.02 "$files/smollm2-F16.gguf" 0.3 "$files/smollm2-Q8_0.gguf" 0.3 "$files/smollm2-Q4_K_M.gguf" 0.3 "$files/smollm2-Q4_0.gguf"
