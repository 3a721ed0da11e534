#!/usr/bin/env bash
# Stock llama.cpp loads every file we write from the bundled checkpoint and agrees with us on tokens and probabilities.
. "$HT_SOURCE/tests/real/prepare.sh"
need_python
need_files tiny "$HT_SOURCE/data/tiny"
"$python" "$real/check_witness.py" "$HALFTONE" \
  0.02 "$files/tiny-F16.gguf" 0.3 "$files/tiny-Q8_0.gguf" 0.3 "$files/tiny-Q4_K_M.gguf" 0.3 "$files/tiny-Q4_0.gguf"
