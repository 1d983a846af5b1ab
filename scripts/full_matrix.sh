#!/usr/bin/env bash
# Every combination of the factors of the stage matrix, every triple, and the weights of a model of
# 1.3 billion parameters (4 GB of memory, 3 GB of disk under TMPDIR): tens of minutes.
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
build/release/bin/zero_test "[.large]"
