#!/usr/bin/env bash
# A real checkpoint's F16 file gives the logits that stock llama.cpp's plain kernels give (f32 KV cache on both sides), and its greedy text.
. "$HT_SOURCE/tests/real/prepare.sh"
need_smollm2
need_files smollm2 "$smollm2"
record=$real/stock_logits_smollm2.json
ids=$(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["prompt_ids"], sep=",")' "$record")
out=$cache/logits.json
"$HALFTONE" run "$files/smollm2-F16.gguf" --prompt-ids "$ids" -n 32 --temp 0 --top 40 --kv f32 --compute exact --json >"$out"
python3 "$real/check_logits.py" "$out" "$record" 0.005
