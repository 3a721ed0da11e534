#!/usr/bin/env python3
"""Ask stock llama.cpp (the xllamacpp wheel) and Halftone the same questions about the same GGUF files.

  check_witness.py HALFTONE LIMIT FILE.gguf [LIMIT FILE.gguf ...]

For every file and each prompt of prompts.json:
  - llama.cpp loads the file;
  - both count the same number of prompt tokens, and llama.cpp answers the text exactly as it answers Halftone's ids: they are its ids too;
  - of the five next tokens that llama.cpp finds likeliest, the log-probabilities of Halftone's exact run of the file differ by at most LIMIT
    nats, and have no bias: their mean over the prompts lies within three standard errors of zero, or within LIMIT / 50;
  - fast: the same for Halftone's fast run, within sqrt(2) LIMIT for quantized files: there both sides round activations to 8 bits, each in
    its own way;
  - decoded: the exact run again, within EXACT_LIMIT, against llama.cpp on a copy of the file in which the gguf package has decoded every
    weight to F32. Nothing is rounded to 8 bits on either side, so this is the sharp comparison: it sees a wrong bit in a block or a tensor
    in the wrong place.
The first two cannot be sharp. Asked these prompts about a Q8_0, Q4_K_M or Q4_0 file of SmolLM2-135M and about the same weights in F32,
llama.cpp differs from itself by up to 0.28, and two of its own kernel paths differ by up to 0.34 when the prompts are short.
Exit 1 names every disagreement.
"""
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import xllamacpp
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

N_TOP = 5
EXACT_LIMIT = 0.02      # llama.cpp itself differs by up to 0.017 between an F16 file and the same weights in F32


class Stock:
    """llama.cpp with one file loaded: one thread, f16 KV cache, everything else at its defaults."""

    def __init__(self, path):
        params = xllamacpp.CommonParams()
        params.model.path = path
        params.n_ctx = 1024
        params.n_parallel = 1
        params.n_gpu_layers = 0
        params.warmup = False
        params.verbosity = 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        self.server = xllamacpp.Server(params)      # raises when llama.cpp refuses the file

    def ask(self, prompt):
        """prompt: text or a list of ids. Returns the number of prompt tokens and [(id, log-probability)], likeliest first."""
        answer = self.server.handle_completions({        # 4 tokens: an answer that ends inside a character carries no probabilities
            "prompt": prompt, "n_predict": 4, "temperature": 0.0, "n_probs": N_TOP, "cache_prompt": False, "ignore_eos": True})
        step = answer["choices"][0]["logprobs"]["content"][0]
        return answer["usage"]["prompt_tokens"], [(t["id"], t["logprob"]) for t in step["top_logprobs"]]


def halftone_ask(halftone, path, prompt, compute):
    """Returns the prompt's ids and {id: log-probability} of the likeliest next tokens."""
    done = subprocess.run([halftone, "run", path, "-p", prompt, "-n", "1", "--json", "--top", "50", "--kv", "f16", "--compute", compute,
                           "--threads", "1"], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"halftone run exits {done.returncode}: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    return answer["prompt_ids"], {t["id"]: t["logprob"] for t in answer["next_top"]}


def write_decoded(source, target):
    """Copy a GGUF file with every weight decoded to F32 by the gguf package."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        is_array = field.types[0] == GGUFValueType.ARRAY
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=field.types[1] if is_array else None)
    for tensor in reader.tensors:
        is_f32 = tensor.tensor_type == GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, tensor.data if is_f32 else dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compare(label, stock_answers, our_answers, prompts, limit):
    """stock_answers, our_answers: one per prompt. Prints the result, returns the complaints."""
    diffs = [[ours.get(i, math.nan) - logprob for i, logprob in top] for (_, top), (_, ours) in zip(stock_answers, our_answers)]
    means = [statistics.fmean(row) for row in diffs]
    bias, error = statistics.fmean(means), math.nan
    if math.isfinite(bias):             # stdev refuses NaN
        error = statistics.stdev(means) / math.sqrt(len(means))
    print(f"{label:26} largest difference {max(abs(d) for row in diffs for d in row):.5f} (limit {limit}), bias {bias:+.5f} +- {error:.5f}")
    complaints = []
    for prompt, row, (n_tokens, _), (ids, _) in zip(prompts, diffs, stock_answers, our_answers):
        if len(ids) != n_tokens:
            complaints.append(f"{label}: {prompt[:30]!r}: {len(ids)} tokens, llama.cpp counts {n_tokens}")
        if not all(abs(d) <= limit for d in row):           # NaN, a token outside our 50 likeliest, fails
            complaints.append(f"{label}: {prompt[:30]!r}: log-probabilities differ by {['%+.4f' % d for d in row]}")
    if not abs(bias) <= max(3 * error, limit / 50):
        complaints.append(f"{label}: log-probabilities are biased by {bias:+.5f} +- {error:.5f}")
    return complaints


def check_file(halftone, path, limit, prompts):
    name = os.path.basename(path)
    try:
        stock = Stock(path)
    except Exception as error:
        return [f"{name}: llama.cpp refuses the file: {error}"]
    stock_answers = [stock.ask(prompt) for prompt in prompts]
    exact = [halftone_ask(halftone, path, prompt, "exact") for prompt in prompts]
    fast = [halftone_ask(halftone, path, prompt, "fast") for prompt in prompts]
    complaints = compare(f"{name} exact", stock_answers, exact, prompts, limit)
    fast_limit = limit if limit <= EXACT_LIMIT else round(math.sqrt(2) * limit, 3)
    complaints += compare(f"{name} fast", stock_answers, fast, prompts, fast_limit)
    for prompt, (ids, _), (_, top) in zip(prompts, exact, stock_answers):
        if stock.ask(ids)[1] != top:
            complaints.append(f"{name}: {prompt[:30]!r}: other tokens than llama.cpp's: {ids}")
    del stock

    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        write_decoded(path, f"{folder}/decoded.gguf")
        stock = Stock(f"{folder}/decoded.gguf")
        stock_answers = [stock.ask(prompt) for prompt in prompts]
        del stock
    return complaints + compare(f"{name} decoded", stock_answers, exact, prompts, EXACT_LIMIT)


def main(halftone, *pairs):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "prompts.json"), encoding="utf-8") as f:
        prompts = json.load(f)
    complaints = []
    for limit, path in zip(pairs[0::2], pairs[1::2]):
        complaints += check_file(halftone, path, float(limit), prompts)
    for complaint in complaints:
        print("FAIL", complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    if len(sys.argv) < 4 or len(sys.argv) % 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
