#!/usr/bin/env bash
# A real checkpoint, quantized by us, is worth at least what stock_perplexity.tsv records of stock's files, in both arithmetics.
. "$HT_SOURCE/tests/real/prepare.sh"
need_smollm2
need_files smollm2 "$smollm2"

n_bad=0
check_perplexity smollm2 "$HT_SOURCE/data/heldout.txt" 10 fast
wikitext=$HT_SHARED/oracle/wikitext2-test.txt
if [ -f "$wikitext" ]; then
  check_perplexity smollm2 "$wikitext" 40 fast
  check_perplexity smollm2 "$wikitext" 40 exact
else
  say "no $wikitext: only the bundled text is evaluated"
  check_perplexity smollm2 "$HT_SOURCE/data/heldout.txt" 10 exact
fi
[ "$n_bad" = 0 ]
