#!/usr/bin/env python3
"""Makes the fixtures of test_tokenizer.c: small tokenizers, and what the libraries `tokenizers` and `sentencepiece` make of some strings.

  make_tokens.py            (pip install tokenizers sentencepiece; run anywhere, writes beside itself)

bpe.json     TINY's byte-level BPE, as tests/cli/make_tiny.py writes it
fallback.json  a BPE with byte fallback trained on data/calib.txt: Llama 2's tokenizer.json in small
spm.model    a SentencePiece BPE with byte fallback trained on the same text
tokens.tsv   tokenizer, text in hex, ids
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import sentencepiece
from tokenizers import Tokenizer, decoders, models, normalizers, trainers

here = pathlib.Path(__file__).resolve().parent
root = here.parents[2]
calib = root / "data/calib.txt"
STRINGS = ["", " ", "   ", "Hello world! Caf\u00e9 d\u00e9j\u00e0 vu \u2014 123 \U0001F60A", "a\r\n\r\nb", " " * 17, "1234567", "\u0130stanbul", "e\u0301",
           "the and then there", "the  two   spaces", "\n\n\n", "tab\tand\nline", "It's we've I'LL they'D", "\u4f60\u597d\uff0c\u4e16\u754c", "\u05e9\u05dc\u05d5\u05dd",
           "x" * 300, "\u180e\u2003\u0085 wide", "trailing space ", "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\ufffd", "In the beginning God created the heaven and the earth.",
           "\u01c5\u00b2\u2460\u0664", "\u2028para\u2029graph", "a.b,c;d:e!f?g", "(x)[y]{z}<w>", "\"quoted\" 'single'", "na\u00efve co\u00f6perate", "\u200b\u200bzero",
           "\u00a0no-break\u00a0space"]


def main():
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, root / "tests/cli/make_tiny.py", f"{scratch}/tiny"], check=True, stdout=subprocess.DEVNULL)
        shutil.copy(f"{scratch}/tiny/tokenizer.json", here / "bpe.json")

    fallback = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    fallback.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    fallback.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    # words only: without a pre-tokenizer the trainer would merge whole sentences
    words = sorted(set(calib.read_text().split()))
    fallback.train_from_iterator(words, trainers.BpeTrainer(vocab_size=700, special_tokens=specials[:3], show_progress=False))
    # the byte tokens are ordinary entries of the vocabulary, so put them there instead of among the added tokens
    import json
    data = json.loads(fallback.to_str())
    vocab = {t: i for i, t in enumerate(specials)}
    for t, _ in sorted(data["model"]["vocab"].items(), key=lambda x: x[1]):
        vocab.setdefault(t, len(vocab))
    data["model"]["vocab"] = vocab
    (here / "fallback.json").write_text(json.dumps(data, ensure_ascii=False, indent=0) + "\n")

    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(calib, scratch)
        os.chdir(scratch)               # the model records the path of its text: keep it short and the same everywhere
        sentencepiece.SentencePieceTrainer.train(
            input="calib.txt", model_prefix="spm", vocab_size=600, model_type="bpe", byte_fallback=True, character_coverage=0.995,
            normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1, minloglevel=2)
        shutil.copy("spm.model", here / "spm.model")
        os.chdir(here)

    bpe, fb = Tokenizer.from_file(str(here / "bpe.json")), Tokenizer.from_file(str(here / "fallback.json"))
    spm = sentencepiece.SentencePieceProcessor(model_file=str(here / "spm.model"))
    for text in STRINGS:
        rows.append(("bpe", text, bpe.encode(text, add_special_tokens=False).ids))
        if text:
            rows.append(("fallback", text, fb.encode(text, add_special_tokens=False).ids))
            rows.append(("spm", text, spm.encode(text)))
    lines = ["\t".join((kind, text.encode().hex(), " ".join(map(str, ids)))) for kind, text, ids in rows]
    (here / "tokens.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
