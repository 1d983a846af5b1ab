#!/usr/bin/env bash
# Holds this library against PyTorch, transformers, safetensors and DeepSpeed as they are installed:
# makes the golden values afresh, compares them with the committed ones, runs the golden tests on
# them, has each side read the files that the other writes, and times their optimizers on this
# machine.
set -euo pipefail

venv=${ZERO_PEER_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/zero/peer_venv}
elements=${ZERO_PEER_SIZE:-64000000}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() {
  cat <<USAGE
usage: ${0##*/} [BUILD]
  BUILD            folder of a build; what is in its bin/ of zero-train, golden_test, io_test and
                   zero-bench is used ($root/build/release)
environment:
  ZERO_PEER_VENV   Python environment; made and filled if it is not there
                   (now: $venv)
  ZERO_PEER_SIZE   elements of the timed optimizers, 16 bytes each (now: $elements)
exit status: 0 if everything agrees, 1 if something differs
USAGE
}
case ${1:-} in
  --help | -h) usage; exit 0 ;;
  -*) echo "${0##*/}: unknown option '$1'" >&2; usage >&2; exit 2 ;;
esac
build=${1:-$root/build/release}
golden=$root/tests/golden

if [[ ! -x $venv/bin/python ]]; then
  python3 -m venv "$venv"
fi
python=$venv/bin/python
if ! "$python" -c 'import deepspeed, numpy, safetensors, torch, transformers' 2>/dev/null; then
  "$python" -m pip install -r "$golden/requirements.txt"
  # DeepSpeed's setup needs torch and these; its operators are compiled when they are first used.
  "$python" -m pip install setuptools wheel packaging psutil py-cpuinfo ninja
  DS_BUILD_OPS=0 "$python" -m pip install --no-build-isolation deepspeed
fi

fresh=$(mktemp -d)
trap 'rm -rf "$fresh" "$fresh.cases"' EXIT
export PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1
for generator in schedules loss_scales updates training_run; do
  echo "== $generator"
  "$python" -W ignore "$golden/$generator.py" --out "$fresh"
done

echo "== exported_models"
if [[ -x $build/bin/zero-train ]]; then
  "$python" -W ignore "$golden/exported_models.py" --programs "$build/bin" --out "$fresh" \
    --cases "$fresh.cases"
else
  echo "left out: there is no $build/bin/zero-train"
  cp -r "$golden/values/exported" "$fresh"
fi

status=0
echo "== files that safetensors wrote"
if [[ -d $fresh.cases && -x $build/bin/io_test ]]; then
  ZERO_CASES_DIR=$fresh.cases "$build/bin/io_test" "Case files*" || status=1
else
  echo "left out: there is no zero-train or no io_test in $build/bin"
fi

echo "== committed and fresh values"
"$python" "$golden/compare.py" "$golden/values" "$fresh" || status=1

echo "== golden tests on the fresh values"
if [[ -x $build/bin/golden_test ]]; then
  ZERO_GOLDEN_VALUES=$fresh "$build/bin/golden_test" || status=1
else
  echo "left out: there is no $build/bin/golden_test"
fi

echo "== optimizers, three times in turn: nanoseconds per parameter"
# DeepSpeed compiles its optimizer at the first use, which takes minutes.
export TORCH_EXTENSIONS_DIR=$venv/torch_extensions OMP_NUM_THREADS=$(nproc)
own_optimizers() {
  "$build/bin/zero-bench" optimizer --elements "$elements" --repeats 5 --json "$fresh/bench.json" \
    >"$fresh/log" || { cat "$fresh/log" >&2; return 1; }
  "$python" "$root/bench/peer_optimizers.py" --rows "$fresh/bench.json"
}
for _ in 1 2 3; do
  "$python" -W ignore "$root/bench/peer_optimizers.py" "$elements" "$(nproc)" 5 2>"$fresh/log" ||
    { cat "$fresh/log" >&2; status=1; }
  if [[ -x $build/bin/zero-bench ]]; then
    own_optimizers || status=1
  fi
done

echo "== offloaded AdamW, bf16 gradients in and bf16 weights out, seven times in turn"
if [[ -x $build/bin/zero-bench ]]; then
  "$python" -W ignore "$root/bench/peer_offload.py" "$build/bin/zero-bench" "$elements" "$(nproc)" 7 \
    2>"$fresh/log" || { cat "$fresh/log" >&2; status=1; }
else
  echo "left out: there is no $build/bin/zero-bench"
fi
exit $status
