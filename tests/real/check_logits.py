#!/usr/bin/env python3
"""Hold the next-token log-probabilities of a `halftone run --json` document against recorded ones.

  check_logits.py RUN.json RECORD.json LIMIT

Every recorded id must be among the document's, within LIMIT nats; the recorded greedy continuation must come out token for token.
Exit 1 tells which did not.
"""
import json
import sys


def main(run_path, record_path, limit):
    with open(run_path, encoding="utf-8") as f:
        run = json.load(f)
    with open(record_path, encoding="utf-8") as f:
        record = json.load(f)
    ours = {t["id"]: t["logprob"] for t in run["next_top"]}
    diffs = [ours.get(t["id"], float("nan")) - t["logprob"] for t in record["next_top"]]
    good = all(abs(d) <= limit for d in diffs)          # a missing id is NaN, and NaN fails
    print(f"{'ok  ' if good else 'FAIL'} {len(diffs)} log-probabilities, largest difference {max(abs(d) for d in diffs):.6f} (limit {limit})")
    if not good:
        for t, d in zip(record["next_top"], diffs):
            print(f"     id {t['id']}: recorded {t['logprob']:.6f}, difference {d:+.6f}")
    same = run["token_ids"] == record["token_ids"]
    print(f"{'ok  ' if same else 'FAIL'} greedy continuation of {len(record['token_ids'])} tokens")
    if not same:
        print(f"     recorded {record['token_ids']}\n     halftone {run['token_ids']}")
    return 0 if good and same else 1


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
