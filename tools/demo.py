#!/usr/bin/env python3
"""The main job on the bundled model, as `./dev demo` runs it: one checkpoint in, three files out, each with its proof.

  demo.py HALFTONE SOURCE_ROOT OUT_FOLDER

Quantizes data/tiny to Q8_0, Q4_K_M and Q4_0 in one read, verifies the files, evaluates them against the source on held-out text,
times them, prints one table, and leaves the files and every JSON in OUT_FOLDER.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import time

TYPES = ["Q8_0", "Q4_K_M", "Q4_0"]


def main():
    halftone, root, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)

    def run(name, *words):
        print("$ halftone " + " ".join(words), file=sys.stderr, flush=True)
        text = subprocess.run([halftone, *words, "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
        (out / name).write_text(text)
        return json.loads(text)

    started = time.monotonic()
    source = str(root / "data/tiny")
    quantize = run("quantize.json", "quantize", source, *[w for t in TYPES for w in ("-t", t)], "-o", str(out / "{name}-{type}.gguf"))
    files = [o["file"] for o in quantize["outputs"]]
    for file in files:
        run(pathlib.Path(file).stem + ".verify.json", "verify", file)
    evaluation = run("eval.json", "eval", *files, "--base", source, "--text", str(root / "data/heldout.txt"))
    bench = run("bench.json", "bench", *files, "--prompt", "128", "--gen", "64")

    scores = {f["file"]: f for f in evaluation["files"]}
    speeds = {f["file"]: f for f in bench["files"]}
    base = evaluation["base"]
    print(f"{'file':<22} {'size':>10} {'bits/w':>7} {'perplexity':>18} {'mean KL':>9} {'same top-1':>10} {'decode tok/s':>12}")
    print(f"{'source (bf16)':<22} {'':>10} {'':>7} {base['perplexity']:>9.4f} +- {base['perplexity_stderr']:.4f}")
    for o in quantize["outputs"]:
        s, v = scores[o["file"]], speeds[o["file"]]
        print(f"{pathlib.Path(o['file']).name:<22} {o['n_bytes'] / 1e6:>7.2f} MB {o['bits_per_weight']:>7.3f} {s['perplexity']:>9.4f} +- "
              f"{s['perplexity_stderr']:.4f} {s['kl_mean']:>9.6f} {100 * s['same_top1']:>9.2f}% {v['decode_tokens_per_s']:>12.1f}")
    print(f"\n{time.monotonic() - started:.1f} s; files and JSON are in {out}/")


if __name__ == "__main__":
    main()
