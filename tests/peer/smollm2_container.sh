#!/usr/bin/env bash
# Our F16 file of a real checkpoint has the metadata and the tensors that llama.cpp's own converter gave that model.
. "$HT_SOURCE/tests/real/prepare.sh"
need_python
need_smollm2
need_files smollm2 "$smollm2"
"$python" "$real/check_container.py" "$files/smollm2-F16.gguf" "$smollm2_q4_1"
