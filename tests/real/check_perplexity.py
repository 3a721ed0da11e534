#!/usr/bin/env python3
"""Hold the perplexities of a `halftone eval --json` document against recorded ones.

  check_perplexity.py EVAL.json MODEL [RECORD.tsv]

The record (default: stock_perplexity.tsv beside this file) has one row per model, text, arithmetic and type: the value that stock
llama.cpp gives, and how far below and above it Halftone may lie, in percent. Rows are chosen by model, SHA-256 of the text, number of
chunks and `compute`. Every file of the document needs a row. Exit 1 names the files out of bounds.
"""
import csv
import json
import os
import sys


def load_record(path):
    with open(path, encoding="utf-8") as f:
        rows = csv.DictReader((line for line in f if not line.startswith("#")), delimiter="\t")
        return {(r["model"], r["text_sha256"], int(r["n_chunks"]), r["compute"], r["type"]): r for r in rows}


def main(document_path, model, record_path):
    with open(document_path, encoding="utf-8") as f:
        document = json.load(f)
    record = load_record(record_path)
    text = document["text"]
    n_bad = 0
    for file in document["files"]:
        row = record[model, text["sha256"], text["n_chunks"], document["compute"], file["type"]]
        stock, below, above = (float(row[key]) for key in ("perplexity", "below_percent", "above_percent"))
        percent = 100 * (file["perplexity"] / stock - 1)
        good = -below <= percent <= above
        n_bad += not good
        print(f"{'ok  ' if good else 'FAIL'} {model} {file['type']:7} {document['compute']:5} perplexity {file['perplexity']:.6f}, recorded {stock:.6f}: "
              f"{percent:+.4f} % (allowed -{below} .. +{above})")
    return 1 if n_bad or not document["files"] else 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    here = os.path.dirname(os.path.abspath(__file__))
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) == 4 else f"{here}/stock_perplexity.tsv"))
