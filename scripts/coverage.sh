#!/usr/bin/env bash
# What a test run without a GPU executes of the code that is written for one: of the lines of
# device/cuda_* and of the groups over NCCL and over a shared GPU at least 95 percent, and every
# kernel for every type. Text of errors counts like any other line. Minutes.
set -euo pipefail
export LC_ALL=C
unset ZERO_TEST_SEED

least=95  # percent
jobs=${ZERO_JOBS:-$(nproc)}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/coverage
programs=(device_cuda_test collectives_cuda_test nccl_load_test kernels_cuda_test llama_cuda_test)
if [[ $# -gt 0 ]]; then
  echo "usage: ${0##*/}    (no options; ZERO_JOBS: compilations at once, now $jobs)" >&2
  [[ $1 == --help || $1 == -h ]] && exit 0
  exit 2
fi
for tool in gcov gcovr; do
  if ! command -v "$tool" >/dev/null; then
    echo "${0##*/}: there is no $tool: install Debian's gcovr, and gcov of the compiler" >&2
    exit 1
  fi
done
cd "$root"

# Counts are atomic: threads of several streams run the same lines at once.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=None \
  -DCMAKE_CXX_FLAGS="-O1 --coverage -fprofile-update=atomic" >/dev/null
targets=$(cmake --build "$build" --target help)
for program in "${programs[@]}"; do
  if [[ $targets != *$'\n'"$program: "* ]]; then
    echo "${0##*/}: no program $program: it needs the headers of CUDA's toolkit and of NCCL" >&2
    exit 1
  fi
done
cmake --build "$build" --parallel "$jobs" --target "${programs[@]}"
find "$build" -name '*.gcda' -delete
for program in "${programs[@]}"; do
  echo "== $program"
  "$build/bin/$program" | tail -n 2
done

status=0
echo "== lines"
gcovr --root "$root" --object-directory "$build" --fail-under-line "$least" \
  --filter 'device/cuda_' --filter 'collectives/nccl_' \
  --filter 'collectives/(watchdog|calls_in_flight|local_device)' \
  "$build/device" "$build/collectives" || status=1

echo "== kernels"
# "<times called> <function>" for each function, kernels once for each type they are compiled for.
called=$(mktemp)
trap 'rm -f "$called"' EXIT
find "$build/tests/emulation" "$build/tests/examples" -name '*.cu.cc.gcda' -print0 |
  xargs -0 gcov --json-format --stdout |
  grep -oP '"execution_count": \d+, "demangled_name": "[^"]*"' | grep -v lambda |
  sed 's/"execution_count": //; s/, "demangled_name": / /' >"$called"
# launched <file> <name> <pattern>: a line of the table, from the functions that match.
launched() {
  local row
  row=$(awk -v pattern="$3" '
    $0 ~ pattern { ++compiled; threads += $1; if ($1 > 0) ++run }
    END { printf "%d %d %.0f", run, compiled, threads }' "$called")
  read -r run compiled threads <<<"$row"
  printf '%3d of %3d versions %10d threads  %-29s %s\n' "$run" "$compiled" "$threads" "$2" "$1"
  if [[ $run -eq 0 || $run -lt $compiled ]]; then
    echo "${0##*/}: no test launches $((compiled - run)) versions of $2 of $1" >&2
    status=1
  fi
}
count=0
for file in kernels/*.cu* examples/llama/*.cu*; do
  text=$(tr '\n' ' ' <"$file")
  for kernel in $(grep -oP '__global__\s+void\s+(__launch_bounds__\(\w+\)\s+)?\K\w+(?=\()' \
                    <<<"$text"); do
    launched "$file" "$kernel" "::${kernel}[<(]"
    count=$((count + 1))
  done
  # What the kernel of kernels/elements.cuh does for each element is a kernel of its own.
  for work in $(grep -oP 'struct \K\w+Op(?= \{)' <<<"$text"); do
    launched "$file" "ElementKernel of $work" "::ElementKernel<.*::${work}[<> ]"
    count=$((count + 1))
  done
done
if [[ $count -lt 20 ]]; then
  echo "${0##*/}: found $count kernels only: how they are declared has changed" >&2
  status=1
fi
exit $status
