#!/usr/bin/env bash
# Rooms include only what lies to their left: formats/base <- formats <- quant <- runtime <- calib <- tools.
set -euo pipefail
cd "$HT_SOURCE"
status=0
check() { # ROOM FORBIDDEN...
  local room=$1 forbidden
  shift
  for forbidden in "$@"; do
    if grep -rnE "#include \"$forbidden/" --include='*.[ch]' "$room" | grep -v '^formats/base/.*"formats/base/'; then
      echo "$room must not include $forbidden/" >&2
      status=1
    fi
  done
}
if grep -rnE '#include "formats/[a-z_0-9]+\.' --include='*.[ch]' formats/base; then
  echo "formats/base must know nothing of models" >&2
  status=1
fi
check formats quant runtime calib tools tests
check quant runtime calib tools tests
check runtime calib tools tests
[ -d calib ] && check calib tools tests
check tools tests
if git grep -lE 'cJSON' -- 'formats/*' 2>/dev/null | grep -vE '^formats/json_value\.'; then
  echo "cJSON stops at formats/json_value.c" >&2
  status=1
fi
exit $status
