#!/usr/bin/env bash
# Checkpoints that are refused (bad-inputs K2-K5, K9, K10; the entry's number stands beside): one line that names file, tensor or key and what
# was expected, exit code 3, nothing written. The cases in detail are in tests/unit/test_{safetensors,hf_checkpoint,source}.c.
source "$HT_SOURCE/tests/cli/lib.sh"
make_tiny() { python3 "$HT_SOURCE/tests/cli/make_tiny.py" "$@" >/dev/null; }
bad() { refused 3 "$@" -- "$HALFTONE" quantize bad -t Q4_0 -o x.gguf; rm -rf bad; }

# --- files -----------------------------------------------------------------------------------------------------------------------
refused 4 'absent' 'No such file' -- "$HALFTONE" quantize absent -t Q4_0 -o x.gguf
mkdir bad
refused 4 'bad/config.json' -- "$HALFTONE" quantize bad -t Q4_0 -o x.gguf
rmdir bad
make_tiny bad --shards 3                                        # 18
rm bad/model-00002-of-00003.safetensors
bad 'missing file model-00002-of-00003.safetensors'
make_tiny bad                                                   # a download that stopped
truncate -s -1 bad/model.safetensors
bad 'bad/model.safetensors: model.layers.1.mlp.down_proj.weight: data_offsets .* leave the file'
make_tiny bad
printf 'x' >>bad/model.safetensors                              # 17
bad 'bad/model.safetensors: trailing data'
make_tiny bad
printf '\377\377\377\377\377\377\377\177' | dd of=bad/model.safetensors conv=notrunc status=none
bad 'the header of 9223372036854775807 bytes leaves the file'
make_tiny bad
printf '{"a": ' >bad/config.json
bad 'bad/config.json' 'not valid JSON'

# --- tensors and keys ------------------------------------------------------------------------------------------------------------
make_tiny bad --drop model.layers.1.mlp.up_proj.weight
bad 'missing tensor model.layers.1.mlp.up_proj.weight'
make_tiny bad --set num_hidden_layers=2 && sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' bad/config.json
bad '9 tensors unknown to family llama: model.layers.1'
make_tiny bad && sed -i 's/"head_dim": 32, //; s/"num_attention_heads": 8/"num_attention_heads": 4/' bad/config.json # 25
bad 'model.layers.0.self_attn.[kq]_proj' 'expected'
make_tiny bad --value model.layers.0.mlp.down_proj.weight,3,17,nan # 30
bad 'blk.0.ffn_down.weight: row 3, column 17: the value is nan'
make_tiny bad --value model.layers.1.self_attn.q_proj.weight,0,0,-inf
bad 'blk.1.attn_q.weight: row 0, column 0: the value is -inf'
make_tiny bad --set 'architectures=["FancyForCausalLM"]'
bad '"FancyForCausalLM" is not supported' 'Qwen3ForCausalLM'
make_tiny bad --set 'quantization_config={"quant_method":"bitsandbytes","load_in_4bit":true}' # 52
bad 'already quantized \(bitsandbytes nf4\); convert from the original'
make_tiny bad --set 'rope_scaling={"rope_type":"proportional"}'  # 55
bad 'bad/config.json: rope_scaling.rope_type: "proportional"'

# --- what is unusual and fine ----------------------------------------------------------------------------------------------------
for options in "--family qwen2 --shards 2" "--family qwen3 --no-head" "--set head_dim=64" "--set vocab_size=304"; do
  # shellcheck disable=SC2086
  make_tiny good $options
  expect 0 -- "$HALFTONE" quantize good -t Q4_K_M -o good.gguf --strict
  expect 0 -- "$HALFTONE" verify good.gguf
  rm -rf good good.gguf
done
finish
