#!/usr/bin/env bash
# Everything that must pass: dependencies, the release build and its suite, then the suite under
# AddressSanitizer and UndefinedBehaviorSanitizer, then the threaded cases under ThreadSanitizer.
set -euo pipefail

usage() {
  cat <<USAGE
usage: ${0##*/} [--release-only] [--help]
  --release-only   leave out the sanitizer builds
environment:
  ZERO_JOBS        compilations at once (now: $jobs)
USAGE
}

jobs=${ZERO_JOBS:-$(nproc)}
sanitizers=yes
for option in "$@"; do
  case $option in
    --release-only) sanitizers=no ;;
    --help | -h) usage; exit 0 ;;
    *) echo "${0##*/}: unknown option '$option'" >&2; usage >&2; exit 2 ;;
  esac
done

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export UBSAN_OPTIONS=print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
export TSAN_OPTIONS="suppressions=$root/tests/tsan.supp${TSAN_OPTIONS:+:$TSAN_OPTIONS}"

times=()
running=
report() {
  local status=$?
  echo
  printf '%s\n' "${times[@]}"
  if [[ $status -ne 0 ]]; then
    echo "FAILED${running:+ in: $running}" >&2
  else
    echo "all passed"
  fi
}
trap report EXIT

# part <name> <command...>: runs the command and notes its seconds.
part() {
  running=$1
  shift
  echo
  echo "== $running"
  local begin=$SECONDS
  "$@"
  times+=("$(printf '%6d s  %s' $((SECONDS - begin)) "$running")")
  running=
}

build() {
  cmake --preset "$1"
  cmake --build --preset "$1" --parallel "$jobs"
}

part "install dependencies" scripts/install_dependencies.sh
part "build release" build release
part "test release" ctest --preset release
if [[ $sanitizers == yes ]]; then
  part "build asan" build asan
  part "test asan" ctest --preset asan
  part "build tsan" build tsan
  part "test tsan" ctest --preset tsan
fi
