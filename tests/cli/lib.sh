# Helpers for the shell tests: sourced, not run. Each test works in a scratch folder of its own.
set -uo pipefail
work=$(mktemp -d "${TMPDIR:-/tmp}/halftone-cli-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}

# expect CODE PATTERN... -- COMMAND...: exit code, and each pattern (grep -E) in what it says on stdout or stderr.
expect() {
  local code=$1 patterns=() found
  shift
  while [ "$1" != -- ]; do
    patterns+=("$1")
    shift
  done
  shift
  "$@" >out.txt 2>err.txt </dev/null
  found=$?
  [[ "$found" =~ ^$code$ ]] || { fail "$* : exit $found, expected $code"; sed 's/^/    /' err.txt >&2; }
  local pattern
  for pattern in "${patterns[@]}"; do
    cat out.txt err.txt | grep -qE -- "$pattern" || { fail "$* : nothing says \"$pattern\""; sed 's/^/    /' err.txt out.txt | head -20 >&2; }
  done
}

# refused CODE PATTERN... -- COMMAND...: as expect, and the folder is as it was, and the message is one line.
refused() {
  local before after
  before=$(find . -not -name out.txt -not -name err.txt | sort)
  expect "$@"
  after=$(find . -not -name out.txt -not -name err.txt | sort)
  [ "$before" = "$after" ] || fail "${*##*--} : left something behind: $(diff <(echo "$before") <(echo "$after") | tr '\n' ' ')"
  [ "$(grep -c '^halftone: ' err.txt)" = 1 ] || fail "${*##*--} : expected one error line"
}

finish() { [ "$failures" = 0 ] || exit 1; }
