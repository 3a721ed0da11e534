#!/usr/bin/env python3
"""Checks a trained checkpoint and prints what README.md reports about it.

    report_tiny.py TEXT MODEL

TEXT is the folder made by make_text.py, MODEL the checkpoint of train_tiny.py. The saved file is read
back twice, by train_tiny's own model and by the transformers library, and the two must give the same
logits, the same token ids and the same greedy text. Then come held-out perplexity in float32 against a
unigram model's, and three greedy continuations.
"""
import json
import math
import sys
from collections import Counter
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

import train_tiny as tiny

GREEDY = 64


def main():
    text, folder = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(2)
    model = tiny.Llama().eval()
    model.load_state_dict({name: w.float() for name, w in load_file(folder / "model.safetensors").items()})
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    their_tokenizer = AutoTokenizer.from_pretrained(folder)

    prompts = (Path(__file__).parent / "prompts.txt").read_text(encoding="utf-8").splitlines()
    heldout = (text / "heldout.txt").read_text(encoding="utf-8")
    for sample in prompts + [heldout, "  \t\n\n naïve 12345 — \U0001f40b's <s>x</s>"]:
        assert tokenizer.encode(sample).ids == their_tokenizer(sample)["input_ids"], sample[:60]
    ids = tokenizer.encode(heldout).ids
    assert tokenizer.decode(ids[1:]) == heldout
    print(f"token ids equal to transformers' on {len(prompts) + 2} texts; held-out text comes back whole")

    chunks = torch.tensor(ids[:len(ids) // tiny.CONTEXT * tiny.CONTEXT]).view(-1, tiny.CONTEXT)
    chunks[:, 0] = 0
    with torch.no_grad():
        apart = (model(chunks[:4]) - theirs(chunks[:4]).logits).abs().max().item()
        assert apart < 1e-3
        print(f"largest logit difference to transformers in float32 over 4 chunks: {apart:.1e}")

        half, losses = tiny.CONTEXT // 2, []
        for batch in chunks.split(8):
            logits = model(batch)[:, half:-1]
            losses.append(F.cross_entropy(logits.flatten(0, 1), batch[:, half + 1:].flatten(), reduction="none"))
        losses = torch.cat(losses)
        mean, error = losses.mean().item(), (losses.std() / math.sqrt(len(losses))).item()
        scored_bytes = sum(len(tokenizer.decode(chunk[half + 1:].tolist()).encode()) for chunk in chunks)
        print(f"{len(ids)} held-out tokens, {len(chunks)} chunks, {len(losses)} scored")
        print(f"model:   {mean:.4f} nats, perplexity {math.exp(mean):.4f} +- {math.exp(mean) * error:.4f}, "
              f"{mean * len(losses) / math.log(2) / scored_bytes:.3f} bits per byte")

        counts = Counter({i: 1 for i in range(tiny.VOCAB)})    # add-one smoothing
        for line in open(text / "train.jsonl", encoding="utf-8"):
            counts.update(tokenizer.encode(json.loads(line), add_special_tokens=False).ids)
        total = sum(counts.values())
        scored = chunks[:, half + 1:].flatten().tolist()
        unigram = -sum(math.log(counts[i] / total) for i in scored) / len(scored)
        print(f"unigram: {unigram:.4f} nats, perplexity {math.exp(unigram):.2f}")

        for prompt in prompts[:3]:
            start = tokenizer.encode(prompt).ids
            mine = list(start)
            for _ in range(GREEDY):
                mine.append(model(torch.tensor([mine]))[0, -1].argmax().item())
                if mine[-1] == 1:
                    break
            ours = theirs.generate(torch.tensor([start]), max_new_tokens=GREEDY, do_sample=False)[0].tolist()
            assert mine == ours
            print(f"--- {prompt} [...]\n{tokenizer.decode(mine[len(start):])}")


if __name__ == "__main__":
    main()
