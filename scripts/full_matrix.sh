#!/usr/bin/env bash
# Every combination of the factors of the stage matrix, and every triple: tens of minutes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
if [[ $# -gt 0 ]]; then
  echo "usage: ${0##*/}    (no options)" >&2
  [[ $1 == --help || $1 == -h ]] && exit 0
  exit 2
fi
scripts/install_dependencies.sh
cmake --preset release
cmake --build --preset release --parallel "${ZERO_JOBS:-$(nproc)}" --target zero_test
build/release/bin/zero_test "[more]"
build/release/bin/zero_test "[.full]"
