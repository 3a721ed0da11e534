#!/usr/bin/env python3
"""Trains the bundled model: a small Llama-family checkpoint in Hugging Face layout.

    train_tiny.py TEXT OUT [--steps N] [--threads N] [--resume]

TEXT is the folder made by make_text.py (train.jsonl, heldout.txt). OUT gets model.safetensors (bf16),
config.json, generation_config.json, tokenizer.json, tokenizer_config.json, and log.tsv, the loss curve.
Training is plain AdamW on random windows of the concatenated chapters, in bf16 autocast, seeded. Every
EVERY steps OUT is rewritten, with state.pt beside it: --resume goes on from there as if never stopped,
also under another --steps as long as the decay has begun under neither.

README.md beside this file holds the exact commands and what they gave.
"""
import argparse
import json
import math
import time
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn

SEED = 20
BOS, EOS = "<s>", "</s>"    # ids 0 and 1

# Every row (hidden, ffn, heads * head_dim) is a multiple of 256, so that each k-quant block is full.
# Eight layers and 8 query heads per 2 key heads reach the per-layer and per-GQA rules of the recipes;
# the output matrix is its own, so token_embd and output follow different rules too.
VOCAB, HIDDEN, FFN, LAYERS, HEADS, KV_HEADS = 2048, 256, 512, 8, 8, 2
HEAD_DIM = HIDDEN // HEADS
CONTEXT, THETA, EPS = 512, 10000.0, 1e-5

BATCH, WEIGHT_DECAY, CLIP = 8, 0.1, 1.0    # one step: 8 windows, 4096 tokens
PEAK_LR, WARMUP, COOLDOWN = 2e-3, 200, 0.35    # COOLDOWN: the share of all steps that lead down to zero
EVERY = 100    # steps between two evaluations, each with a checkpoint

# The pre-tokenizer of Llama 3, known to llama.cpp as "llama-bpe".
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")


# ---- tokenizer ----

def train_tokenizer(documents):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[BOS, EOS], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, 0)])
    assert tokenizer.get_vocab_size() == VOCAB
    return tokenizer


# ---- model: module names give the tensors their Hugging Face names ----

class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        return F.rms_norm(x.float(), (HIDDEN,), self.weight, EPS).to(x.dtype)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def rotate(x, cos, sin):
    """RoPE on x[batch, head, position, HEAD_DIM]; the pairs are (i, i + HEAD_DIM/2)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = linear(HIDDEN, HEADS * HEAD_DIM)
        self.k_proj = linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.v_proj = linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.o_proj = linear(HEADS * HEAD_DIM, HIDDEN)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        split = lambda y, heads: y.view(batch, length, heads, HEAD_DIM).transpose(1, 2)
        q = rotate(split(self.q_proj(x), HEADS), cos, sin)
        k = rotate(split(self.k_proj(x), KV_HEADS), cos, sin)
        v = split(self.v_proj(x), KV_HEADS)
        k, v = (y.repeat_interleave(HEADS // KV_HEADS, dim=1) for y in (k, v))
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, HEADS * HEAD_DIM))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = linear(HIDDEN, FFN)
        self.up_proj = linear(HIDDEN, FFN)
        self.down_proj = linear(FFN, HIDDEN)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = Norm()
        self.self_attn = Attention()
        self.post_attention_layernorm = Norm()
        self.mlp = FeedForward()

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Body()
        self.lm_head = linear(HIDDEN, VOCAB)
        angle = torch.outer(torch.arange(CONTEXT).float(),
                            THETA ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * LAYERS) if into_residual else 0.02)

    def forward(self, ids):
        """Logits [batch, position, VOCAB] of ids [batch, position], at most CONTEXT positions."""
        length = ids.shape[1]
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        return self.lm_head(self.model.norm(x))


# ---- saving ----

def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def save(model, tokenizer, out):
    weights = {name: w.detach().to(torch.bfloat16).contiguous() for name, w in model.state_dict().items()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(out / "tokenizer.json"))
    write_json(out / "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": FFN,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM, "max_position_embeddings": CONTEXT, "rope_theta": THETA,
        "rope_scaling": None, "rms_norm_eps": EPS, "hidden_act": "silu", "attention_bias": False,
        "mlp_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02,
        "tie_word_embeddings": False, "use_cache": True, "bos_token_id": 0, "eos_token_id": 1})
    write_json(out / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 1})
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS,
        "add_bos_token": True, "add_eos_token": False, "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT})


# ---- training ----

def bf16():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def heldout_loss(model, chunks):
    """Mean nats per token over the second half of each chunk of CONTEXT tokens."""
    total = 0.0
    with torch.no_grad(), bf16():
        for batch in chunks.split(BATCH):
            half = CONTEXT // 2
            logits = model(batch)[:, half:-1].float()
            total += F.cross_entropy(logits.flatten(0, 1), batch[:, half + 1:].flatten(), reduction="sum").item()
    return total / (len(chunks) * (CONTEXT // 2 - 1))


def learning_rate(step, steps):
    """Straight up, level, straight down to zero."""
    return PEAK_LR * min(1.0, (step + 1) / WARMUP, (steps - step) / (COOLDOWN * steps))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    torch.set_num_threads(args.threads)

    documents = [json.loads(line) for line in open(args.text / "train.jsonl", encoding="utf-8")]
    tokenizer = train_tokenizer(documents)
    ids = []
    for encoding in tokenizer.encode_batch(documents):    # <s> chapter </s> <s> chapter </s> ...
        ids += encoding.ids + [1]
    stream = torch.tensor(numpy.array(ids, dtype=numpy.int64))
    heldout = tokenizer.encode((args.text / "heldout.txt").read_text(encoding="utf-8")).ids
    chunks = torch.tensor(heldout[:len(heldout) // CONTEXT * CONTEXT]).view(-1, CONTEXT)
    chunks[:, 0] = 0

    model = Llama()
    matrices = [w for w in model.parameters() if w.dim() == 2]
    vectors = [w for w in model.parameters() if w.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}],
        betas=(0.9, 0.95), fused=True)
    size = sum(w.numel() for w in model.parameters())
    print(f"{size} parameters, {len(stream)} training tokens, {len(chunks)} held-out chunks", flush=True)

    done, spent = 0, 0.0
    if args.resume:
        state = torch.load(args.out / "state.pt")
        done, spent = state["done"], state["spent"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
    log = open(args.out / "log.tsv", "a" if args.resume else "w", encoding="utf-8")
    if not args.resume:
        print("step\ttrain\theldout\tseconds", file=log, flush=True)
    started, recent = time.time() - spent, []
    for step in range(done, args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps)
        starts = torch.randint(len(stream) - CONTEXT, (BATCH, 1))
        window = stream[starts + torch.arange(CONTEXT + 1)]
        window[:, 0] = 0    # as in evaluation, where each chunk begins with <s>
        with bf16():
            logits = model(window[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        recent.append(loss.item())
        if (step + 1) % EVERY == 0 or step + 1 == args.steps:
            save(model, tokenizer, args.out)
            torch.save({"done": step + 1, "spent": time.time() - started, "rng": torch.get_rng_state(),
                        "model": model.state_dict(), "optimizer": optimizer.state_dict()}, args.out / "state.pt")
            line = (f"{step + 1}\t{sum(recent) / len(recent):.4f}\t{heldout_loss(model, chunks):.4f}"
                    f"\t{time.time() - started:.0f}")
            print(line, file=log, flush=True)
            print(line, flush=True)
            recent = []


if __name__ == "__main__":
    main()
