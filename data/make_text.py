#!/usr/bin/env python3
"""Makes the texts of the bundled model from Debian packages of public-domain books.

    make_text.py ROOT OUT

ROOT is the folder the packages bible-kjv, bible-kjv-text, r-cran-janeaustenr and r-cran-tokenizers are
unpacked in (`dpkg -x`; `/` when they are installed). Into OUT go

    train.jsonl    the training documents, one JSON string a line
    calib.txt      calibration text, never trained on
    heldout.txt    evaluation text, never trained on

A document is one chapter; chapters are held out whole, so the three parts share no chapter. README.md
beside this file names the books, their licences and the package versions.
"""
import bz2
import json
import lzma
import random
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

SEED = 20
HELDOUT_SHARE = 0.014    # of each source's characters
CALIB_SHARE = 0.009


# ---- R's lazy-load databases: NAME.rdx is an index of (offset, length) into NAME.rdb ----

class RValue:
    """Reads one value of R's XDR serialization (R Internals, section 1.8): lists, strings and numbers."""

    def __init__(self, data):
        self.data, self.at, self.refs = data, 0, []

    def int(self):
        self.at += 4
        return struct.unpack_from(">i", self.data, self.at - 4)[0]

    def read(self):
        if self.data[:2] != b"X\n":
            raise ValueError("not an XDR serialization")
        self.at = 2
        version, _, _ = self.int(), self.int(), self.int()
        if version == 3:
            size = self.int()
            self.at += size    # the name of the native encoding
        return self.item()

    def item(self):
        flags = self.int()
        kind, has_attributes, has_tag = flags & 255, flags & 512, flags & 1024
        if kind == 254:    # NULL
            return None
        if kind == 255:    # a symbol seen before
            return self.refs[(flags >> 8) - 1]
        if kind == 1:    # symbol
            self.refs.append(self.item())
            return self.refs[-1]
        if kind == 2:    # pairlist
            if has_attributes:
                self.item()
            tag = self.item() if has_tag else None
            return [(tag, self.item())] + (self.item() or [])
        if kind == 9:    # one string
            size = self.int()
            if size < 0:
                return None
            self.at += size
            return self.data[self.at - size:self.at].decode("utf-8")
        if kind in (10, 13, 14):    # logicals, integers, reals
            count, code, width = self.int(), "d" if kind == 14 else "i", 8 if kind == 14 else 4
            value = list(struct.unpack_from(f">{count}{code}", self.data, self.at))
            self.at += width * count
        elif kind in (16, 19):    # strings, list
            value = [self.item() for _ in range(self.int())]
        else:
            raise ValueError(f"R type {kind} is not handled")
        attributes = dict(self.item()) if has_attributes else {}
        return dict(zip(attributes["names"], value)) if "names" in attributes else value


def r_database(base):
    """The variables of the database base.rdx / base.rdb."""
    index = RValue(zlib.decompress(base.with_suffix(".rdx").read_bytes(), wbits=47)).read()
    blob, variables = base.with_suffix(".rdb").read_bytes(), {}
    for name, (offset, size) in index["variables"].items():
        packed = blob[offset:offset + size]    # 4 bytes of unpacked size, then the packing's letter
        if packed[4:5] == b"Z":
            filters = [{"id": lzma.FILTER_LZMA2, "preset": 6}]
            raw = lzma.decompress(packed[5:], lzma.FORMAT_RAW, filters=filters)
        elif packed[4:5] == b"2":
            raw = bz2.decompress(packed[5:])
        else:
            raw = zlib.decompress(packed[4:])
        variables[name] = RValue(raw).read()
    return variables


# ---- the books, as lists of chapters ----

def plain(block):
    """One paragraph without its line breaks, italics marks and double spaces. Verse keeps its lines."""
    lines = block.split("\n")
    joint = "\n" if any(line.startswith("  ") for line in lines) else " "
    text = joint.join(re.sub(r"[ \t]+", " ", line).strip() for line in lines)
    return text.replace("_", "").strip()


def chapters(text, heading):
    """Splits a book at the lines that match heading; what stands before the first one is dropped."""
    starts = [match.start() for match in re.finditer(heading, text, re.M)] + [len(text)]
    for start, end in zip(starts, starts[1:]):
        paragraphs = [plain(block) for block in re.split(r"\n\s*\n", text[start:end])]
        kept = [p for p in paragraphs if p and not re.fullmatch(r"THE END|FINIS|End|VOLUME [IV]+", p)]
        yield "\n\n".join(kept)


def austen(root):
    novels = r_database(root / "usr/lib/R/site-library/janeaustenr/data/Rdata")
    for name in sorted(novels):
        yield from chapters("\n".join(novels[name]), r"^(?:CHAPTER|Chapter) [0-9IVXL]+\.?$")


def moby_dick(root):
    text = r_database(root / "usr/lib/R/site-library/tokenizers/data/Rdata")["mobydick"]["mobydick"]
    text = text.replace("\r\n", "\n")
    text = text[:text.index("End of Project Gutenberg")]
    yield from chapters(text, r"^(?:CHAPTER \d+\. .*|Epilogue)$")


def bible(root):
    command = [root / "usr/bin/bible", "-p", root / "usr/lib", "-l100000", "gen1:1-rev22:21"]
    text = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    for chapter in re.split(r"^(?=\S)", text, flags=re.M):
        title, _, verses = chapter.partition("\n")
        verses = re.findall(r"^ +\d+ (.*)$", verses, re.M)
        if verses:
            yield title.strip() + "\n\n" + "\n".join(plain(verse) for verse in verses)


def main():
    root, out = Path(sys.argv[1]), Path(sys.argv[2])
    rng = random.Random(SEED)
    train, parts = [], {"heldout": [], "calib": []}
    for source in (austen, moby_dick, bible):
        documents = list(source(root))
        total = sum(map(len, documents))
        order = rng.sample(range(len(documents)), len(documents))
        taken = set()
        for part, share in (("heldout", HELDOUT_SHARE), ("calib", CALIB_SHARE)):
            picked, size = [], 0
            while size < share * total:
                picked.append(order.pop())
                size += len(documents[picked[-1]])
            taken.update(picked)
            parts[part] += [documents[i] for i in sorted(picked)]
        kept = [document for i, document in enumerate(documents) if i not in taken]
        train += kept
        print(f"{source.__name__}: {len(documents)} chapters, {total} characters, {len(kept)} trained on")
    out.mkdir(parents=True, exist_ok=True)
    for part, documents in parts.items():
        text = "\n\n\n".join(documents) + "\n"
        (out / f"{part}.txt").write_text(text, encoding="utf-8")
        print(f"{part}.txt: {len(documents)} chapters, {len(text.encode())} bytes")
    with open(out / "train.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(document, ensure_ascii=False) + "\n" for document in train)


if __name__ == "__main__":
    main()
