#!/usr/bin/env bash
# Runs the targets of tests/fuzz under libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer,
# each for a number of executions. Needs clang.
set -euo pipefail

usage() {
  cat <<USAGE
usage: ${0##*/} [TARGET...]
  TARGET        safetensors_fuzz, weight_index_fuzz, manifest_fuzz (all of them)
environment:
  ZERO_FUZZ_RUNS   executions of each target (now: $runs)
  ZERO_FUZZ_SEED   of libFuzzer's choices; 0: another one each time (now: $seed)
  ZERO_JOBS        compilations at once (now: $jobs)
exit status: 0 if nothing was found; a finding is left in $build/findings
USAGE
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/fuzz
runs=${ZERO_FUZZ_RUNS:-1000000}
seed=${ZERO_FUZZ_SEED:-0}
jobs=${ZERO_JOBS:-$(nproc)}
all=(safetensors_fuzz weight_index_fuzz manifest_fuzz)
targets=()
for argument in "$@"; do
  case $argument in
    --help | -h) usage; exit 0 ;;
    *)
      if [[ " ${all[*]} " != *" $argument "* ]]; then
        echo "${0##*/}: unknown target '$argument'" >&2
        usage >&2
        exit 2
      fi
      targets+=("$argument")
      ;;
  esac
done
if [[ ${#targets[@]} -eq 0 ]]; then
  targets=("${all[@]}")
fi
if ! command -v clang++ >/dev/null; then
  echo "${0##*/}: there is no clang++ here; Debian's package clang has it and libFuzzer" >&2
  exit 1
fi

cmake -S "$root" -B "$build" -G Ninja -D CMAKE_CXX_COMPILER=clang++ -D CMAKE_BUILD_TYPE=None \
  -D CMAKE_CXX_FLAGS="-O1 -g1" -D ZERO_SANITIZE=fuzzer-no-link,address,undefined \
  -D ZERO_WERROR=OFF -D CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON >/dev/null
seeds=("${targets[@]/%/_seeds}")
cmake --build "$build" --parallel "$jobs" --target "${targets[@]}" "${seeds[@]}"

mkdir -p "$build/findings"
export UBSAN_OPTIONS=print_stacktrace=1
for target in "${targets[@]}"; do
  # What earlier runs found new ways with is kept, and begun with.
  corpus=$build/corpus/$target
  mkdir -p "$corpus"
  "$build/bin/${target}_seeds" "$corpus"
  echo
  echo "== $target: $runs executions"
  "$build/bin/$target" -runs="$runs" -seed="$seed" -max_len=8192 -timeout=10 -print_final_stats=1 \
    -verbosity=0 -print_funcs=0 -artifact_prefix="$build/findings/$target-" "$corpus"
done
