#!/usr/bin/env python3
"""Hold an F16 file of ours against the GGUF that llama.cpp's own converter made of the same model.

  check_container.py OURS.gguf THEIRS.gguf

Every metadata key of the architecture and of the tokenizer must be there with the same type and value, unless it says what a loader
assumes anyway, and every tensor with the same shape; ours may have more keys. (Values of the weights differ: theirs are quantized.)
Exit 1 names every difference.
"""
import sys

from gguf import GGUFReader

ASSUMED = {"tokenizer.ggml.add_space_prefix": (["BOOL"], False)}      # of a byte-level BPE tokenizer


def facts(path):
    reader = GGUFReader(path)
    keys = {name: ([t.name for t in field.types], field.contents()) for name, field in reader.fields.items()
            if name.startswith(("llama.", "tokenizer."))}
    return keys, {t.name: [int(n) for n in t.shape] for t in reader.tensors}


def main(our_path, their_path):
    (our_keys, our_tensors), (their_keys, their_tensors) = facts(our_path), facts(their_path)
    complaints = [f"{name}: theirs {str(value)[:80]}, ours {str(our_keys.get(name, 'missing'))[:80]}"
                  for name, value in their_keys.items() if our_keys.get(name, ASSUMED.get(name)) != value]
    complaints += [f"tensor {name}: theirs {their_tensors.get(name, 'missing')}, ours {our_tensors.get(name, 'missing')}"
                   for name in sorted({**our_tensors, **their_tensors}) if our_tensors.get(name) != their_tensors.get(name)]
    print(f"{len(their_keys)} keys and {len(their_tensors)} tensors compared")
    for complaint in complaints:
        print("FAIL", complaint)
    return 1 if complaints or not their_tensors else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
