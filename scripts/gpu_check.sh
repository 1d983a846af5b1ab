#!/usr/bin/env bash
# Checks the library on a GPU. `build` makes a package where the toolkit is; `run` runs it on a
# machine that needs an NVIDIA driver only: NCCL, cuBLASLt and compute-sanitizer are used if found.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
jobs=${ZERO_JOBS:-$(nproc)}
most_bytes=$((60 << 20))
seconds_in_all=470
usage() {
  cat <<USAGE
usage: ${0##*/} build [ARCHITECTURES]    build/gpu/package, for GPUs of ARCHITECTURES (90)
       ${0##*/} run [PACKAGE] [RESULTS]  a table, in at most $seconds_in_all s; details in RESULTS
  ARCHITECTURES  as CMAKE_CUDA_ARCHITECTURES: "90", "80;90"
  PACKAGE        what build made (where this script lies, or build/gpu/package)
  RESULTS        a folder to be made (gpu_results)
exit status of run: 0 if every part passed or was left out for want of something that is named
environment:
  ZERO_JOBS      compilations at once (now: $jobs)
USAGE
}
fail() {
  echo "${0##*/}: $2" >&2
  exit "$1"
}

# ---------------------------------------------------------------------------------------- build

programs=(gpu_info device_gpu_test kernels_gpu_test collectives_gpu_test zero_gpu_test
  llama_gpu_test zero-train zero-bench)

build() {
  local package=build/gpu/package
  cd "$root"
  [[ $1 =~ ^[0-9]+[a-z]?(;[0-9]+[a-z]?)*$ ]] ||
    fail 2 "ARCHITECTURES is '$1'; it must be numbers as 90 or 80;90"
  cmake --preset gpu -D CMAKE_CUDA_ARCHITECTURES="$1"
  grep '^CMAKE_CUDA_COMPILER:' build/gpu/CMakeCache.txt | grep -qv 'NOTFOUND$' ||
    fail 1 "no CUDA toolkit was found; build where it is, with nvcc on the PATH or CUDACXX set"
  grep '^ZERO_NCCL_INCLUDE_DIR:' build/gpu/CMakeCache.txt | grep -qv 'NOTFOUND$' ||
    fail 1 "nccl.h was not found; it must be among the toolkit's headers or in CMAKE_PREFIX_PATH"
  cmake --build --preset gpu --parallel "$jobs" --target "${programs[@]}"
  rm -rf $package
  mkdir -p $package/bin $package/model
  local program needed
  for program in "${programs[@]}"; do
    strip -o "$package/bin/$program" "build/gpu/bin/$program"
    needed=$(readelf -d "$package/bin/$program" |
      sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
      grep -Ev '^(libc|libm|libpthread|libdl|librt|ld-linux-x86-64)\.so\.[0-9]+$' || true)
    [[ -z $needed ]] || fail 1 "$program needs $(echo $needed), which other machines may lack"
  done
  cp "${BASH_SOURCE[0]}" $package/gpu_check.sh
  cp examples/models/demo/config.json $package/model/
  cat ARCHITECTURE.md CONTRIBUTING.md README.md >$package/text.txt
  # "-dirty": with changes that are in no commit.
  git describe --always --abbrev=40 --dirty >$package/commit
  "$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' build/gpu/CMakeCache.txt)" --version |
    sed -n "s/.*release \(.*\), .*/CUDA \1, architectures $1/p" >$package/built_with
  local bytes
  bytes=$(du -sb $package | cut -f 1)
  du -b $package/bin/* | sed "s|$package/||"
  ((bytes <= most_bytes)) || fail 1 "$package has $bytes bytes; it must have at most $most_bytes"
  echo "$package: $bytes bytes of $most_bytes; it needs a C library of version" \
    "$(cat $package/bin/* | grep -ao 'GLIBC_2\.[0-9]*' | sort -Vu | tail -n 1) or later"
}

# ------------------------------------------------------------------------------------------ run

rows=()
failed=
row() { # <part> <result> <seconds>
  rows+=("$(printf '%-44s %-34s %7s' "$1" "$2" "$3")")
  echo "${rows[-1]}"
}

# part <name> <limit in seconds> <log> <command...>: runs it and adds a row.
part() {
  local name=$1 limit=$2 log=$results/$3 left begin status=0
  shift 3
  left=$((seconds_in_all - SECONDS))
  if ((left < 5)); then
    row "$name" "FAILED: no time was left" 0
    failed=yes
    return
  fi
  ((limit < left)) || limit=$left
  begin=$(date +%s.%N)
  echo "\$ $*" >"$log"
  # Through a shell of its own: some parts are functions.
  timeout -k 5 "$limit" bash -c 'set -uo pipefail; "$@"' "$name" "$@" >>"$log" 2>&1 || status=$?
  local seconds
  seconds=$(awk "BEGIN { printf \"%.1f\", $(date +%s.%N) - $begin }")
  if ((status == 124 || status == 137)); then
    row "$name" "FAILED: more than $limit s" "$seconds"
  elif ((status != 0)); then
    row "$name" "FAILED: status $status, see $(basename "$log")" "$seconds"
  elif grep -q '^LEFT OUT: ' "$log"; then
    row "$name" "left out: $(sed -n 's/^LEFT OUT: //p' "$log" | head -n 1)" "$seconds"
  else
    row "$name" "passed" "$seconds"
  fi
  ((status == 0)) || failed=yes
}

# Each case that matches in a process of its own: after a failure a process has no GPU.
one_by_one() { # <program> <cases>
  local names name status=0
  names=$("$1" --list-test-names-only "$2") # its status is the number of cases
  [[ -n $names ]] || { echo "no case matches $2"; return 1; }
  while IFS= read -r name; do
    "$1" "${name//,/\\,}" -w NoTests </dev/null || status=1
  done <<<"$names"
  return $status
}

# Relative differences of two metrics files, a line a step, against bounds: of the first loss, which
# no update has touched, of later ones, of norms.
compare_metrics() { # <host> <gpu> <first loss> <later losses> <norms>
  awk -v first="$3" -v loss="$4" -v norm="$5" '
    function value(name) {
      if (!match($0, "\"" name "\": [^,}]*")) { print "no " name " in " FILENAME; exit 1 }
      return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) + 0
    }
    function off(a, b) { return (a > b ? a - b : b - a) / (b < 0 ? -b : b) }
    NR == FNR {
      host_loss[FNR] = value("loss"); host_norm[FNR] = value("grad_norm"); hosts = FNR
      next
    }
    {
      steps = FNR
      l = off(value("loss"), host_loss[FNR]); n = off(value("grad_norm"), host_norm[FNR])
      good = l <= (FNR == 1 ? first : loss) && n <= norm
      printf "step %d: loss %.7g, relative difference %.2g; norm %.7g, %.2g%s\n", FNR,
             host_loss[FNR], l, host_norm[FNR], n, good ? "" : " TOO LARGE"
      if (!good) bad = 1
    }
    END {
      if (hosts == 0 || steps != hosts) { print "steps: " hosts + 0 " and " steps + 0; exit 1 }
      exit bad
    }' "$1" "$2"
}

train() { # <flags...>
  "$bin/zero-train" --model "$package/model" --data "$package/text.txt" --sequence_length 64 \
    --micro_batch 1 --learning_rate 1e-3 --clip 1 --weight_decay 0.1 --seed 5 "$@"
}

# The same training on the host and on the GPU, to bounds: products add in another order there, and
# AdamW makes more of that where a gradient is near zero.
trainings() {
  local dtype stage ranks name device first loss norm status=0
  for dtype in fp32 bf16; do
    case $dtype in
      fp32) first=1e-5 loss=1e-3 norm=1e-2 ;;
      bf16) first=2e-2 loss=3e-2 norm=1e-1 ;;
    esac
    for stage in 0 3; do
      for ranks in 1 2; do
        name=train_${dtype}_stage${stage}_ranks$ranks
        echo "== $name: at most $first for the first loss, then $loss; $norm for norms"
        for device in host cuda; do
          train --dtype $dtype --stage $stage --ranks $ranks --steps 6 --device $device \
            --metrics "$results/${name}_$device.jsonl" || return 1
        done
        compare_metrics "$results/${name}_host.jsonl" "$results/${name}_cuda.jsonl" \
          $first $loss $norm || status=1
      done
    done
  done
  return $status
}

# compute-sanitizer over two steps of two ranks, and over kernels with shared memory.
sanitized() { # <tool>
  local status=0 log
  log=$(mktemp)
  {
    "$sanitizer" --tool "$1" --error-exitcode 9 "$bin/zero-train" --model "$package/model" --data \
      "$package/text.txt" --sequence_length 16 --micro_batch 1 --steps 2 --ranks 2 --stage 3 \
      --device cuda &&
      "$sanitizer" --tool "$1" --error-exitcode 9 "$bin/kernels_gpu_test" \
        "Norm: every*,DecideStep*,CombineNorms*,OrderedSum: every*" -w NoTests
  } 2>&1 | tee "$log" || status=$?
  if grep -q "Device not supported" "$log"; then
    echo "LEFT OUT: it cannot check this GPU"
    status=0
  fi
  rm -f "$log"
  return $status
}

# Puts the folder of a library that is not in the linker's path there: Python brings such.
find_library() { # <name>
  ldconfig -p 2>/dev/null | grep -q "$1" && return
  local found
  found=$(timeout 10 find /usr /opt -name "$1" -print -quit 2>/dev/null || true)
  [[ -z $found ]] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "$found")
}

run() {
  package=$1 results=$2
  bin=$package/bin
  [[ -x $bin/gpu_info ]] || fail 1 "'$package' is no package; '${0##*/} build' makes one"
  local info
  find_library libnccl.so.2
  find_library libcublasLt.so.13
  info=$("$bin/gpu_info" 2>&1) || fail 1 "$info"
  [[ ! -e $results ]] || fail 1 "'$results' is there already"
  mkdir -p "$results" || fail 1 "'$results' cannot be made"
  results=$(cd "$results" && pwd)
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer \
    /usr/local/cuda*/compute-sanitizer/compute-sanitizer 2>/dev/null | head -n 1 || true)
  export bin package results sanitizer
  export -f compare_metrics one_by_one sanitized train trainings
  # A kernel that is loaded late would wait for one that a test holds back.
  export CUDA_MODULE_LOADING=EAGER
  {
    date -u '+date: %Y-%m-%d %H:%M UTC'
    echo "commit: $(cat "$package/commit")"
    echo "built with: $(cat "$package/built_with")"
    echo "$info"
    echo "driver: $(sed -n 's/^NVRM version: *//p' /proc/driver/nvidia/version 2>/dev/null ||
      echo 'unknown version')"
  } | tee "$results/machine.txt"
  echo

  part "device: contract suite" 60 device.txt "$bin/device_gpu_test" "~Failure*" -w NoTests
  part "device: streams that fail" 60 device_failures.txt \
    one_by_one "$bin/device_gpu_test" "Failure*"
  part "kernels: the scalar formulas' bits" 75 kernels.txt "$bin/kernels_gpu_test" "~[large]" \
    -w NoTests
  part "collectives: ranks that share the GPU" 90 collectives.txt \
    "$bin/collectives_gpu_test" "~[nccl]" -w NoTests
  local nccl=yes
  if grep -q '^NCCL: none' "$results/machine.txt"; then
    nccl=
    row "collectives: NCCL with one rank" "left out: no NCCL" 0
  else
    part "collectives: NCCL with one rank" 60 nccl.txt "$bin/collectives_gpu_test" "[nccl]" \
      -w NoTests
  fi
  part "zero: stages against the host's bits" 120 stages.txt "$bin/zero_gpu_test" "~[nccl]" \
    -w NoTests
  if [[ -n $nccl ]]; then
    part "zero: stages over NCCL, one rank" 90 stages_nccl.txt "$bin/zero_gpu_test" "[nccl]" \
      -w NoTests
  else
    row "zero: stages over NCCL, one rank" "left out: no NCCL" 0
  fi
  part "examples: the model's operations" 60 llama.txt "$bin/llama_gpu_test"
  part "examples: losses are the host's" 90 trainings.txt trainings
  part "kernels: 2^31 + 3 elements" 60 large.txt "$bin/kernels_gpu_test" "[large]" \
    -w NoTests
  part "bench: kernels against a copy" 45 bench.txt "$bin/zero-bench" kernels --device cuda \
    --elements $((1 << 28)) --json "$results/bench.jsonl"
  local tool
  for tool in memcheck racecheck; do
    if [[ -n $sanitizer ]]; then
      part "compute-sanitizer: $tool" 60 $tool.txt sanitized $tool
    else
      row "compute-sanitizer: $tool" "left out: it is not there" 0
    fi
  done

  {
    echo
    cat "$results/machine.txt"
    echo
    if [[ -s $results/bench.txt ]]; then tail -n +2 "$results/bench.txt"; echo; fi
    printf '%-44s %-34s %7s\n' part result seconds
    printf '%s\n' "${rows[@]}"
    echo
    echo "${failed:+FAILED }in $SECONDS s"
  } | tee "$results/table.txt"
  [[ -z $failed ]]
}

case ${1:-} in
  build)
    [[ $# -le 2 ]] || { usage >&2; exit 2; }
    build "${2:-90}"
    ;;
  run)
    [[ $# -le 3 ]] || { usage >&2; exit 2; }
    default=$root/build/gpu/package
    if [[ -d $here/bin ]]; then default=$here; fi
    run "${2:-$default}" "${3:-gpu_results}"
    ;;
  --help | -h) usage ;;
  *) usage >&2; exit 2 ;;
esac
