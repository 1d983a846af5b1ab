#!/usr/bin/env bash
# Trains a small model on a text and shows what the stages cost: dependencies, build, training in
# stage 3 on 4 ranks, a table of stages 0 to 3, and a continuation of a prompt.
set -euo pipefail
export LC_ALL=C

jobs=${ZERO_JOBS:-$(nproc)}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() {
  cat <<USAGE
usage: ${0##*/} [--output FOLDER] [--help] [FILE]
  FILE             text to train on (the Bible, from the package bible-kjv)
  --output FOLDER  where the model goes (build/demo)
environment:
  ZERO_JOBS        compilations at once (now: $jobs)
USAGE
}
fail() {
  echo "${0##*/}: $2" >&2
  exit "$1"
}

output=$root/build/demo
text=
while [[ $# -gt 0 ]]; do
  case $1 in
    --output) [[ $# -ge 2 ]] || fail 2 "--output needs a folder"; output=$2; shift ;;
    --output=*) output=${1#*=} ;;
    --help | -h) usage; exit 0 ;;
    -*) fail 2 "unknown option '$1'; see --help" ;;
    *) [[ -z $text ]] || fail 2 "two texts, '$text' and '$1'; one is enough"; text=$1 ;;
  esac
  shift
done
if [[ -n $text ]]; then
  [[ -e $text ]] || fail 1 "FILE: '$text' does not exist"
  [[ -f $text ]] || fail 1 "FILE: '$text' is not a file"
  [[ -s $text ]] || fail 1 "FILE: '$text' is empty"
  text=$(realpath "$text")
fi
output=$(realpath -m "$output")
cd "$root"

part() {
  echo
  echo "== $1"
}

part "install dependencies"
scripts/install_dependencies.sh

part "build release"
cmake --preset release
cmake --build --preset release --parallel "$jobs" --target zero-train zero-sample
bin=build/release/bin

begin=$SECONDS
mkdir -p "$output" || fail 1 "--output: '$output' cannot be made"
loss_limit=
if [[ -z $text ]]; then
  part "make the text"
  text=$output/text.txt
  PATH=$PATH:/usr/games bible -f 'Gen1:1-Rev22:21' >"$text.tmp" || fail 1 "the bible program failed"
  mv "$text.tmp" "$text"
  loss_limit=1.8  # nats per byte, for this text
  wc -c "$text"
fi

part "train in stage 3 on 4 ranks"
model=(--model examples/models/demo --data "$text" --ranks 4 --dtype bf16 --micro_batch 2
  --learning_rate 3e-3 --weight_decay 0.1 --clip 1)
metrics=$output/metrics.jsonl
"$bin/zero-train" "${model[@]}" --stage 3 --steps 400 --warmup_steps 30 --schedule cosine \
  --log_every 25 --metrics "$metrics" --output "$output"
loss=$(tail -n 20 "$metrics" | sed -n 's/^{"step": [0-9]*, "loss": \([^,]*\),.*/\1/p' |
  awk '{ sum += $1 } END { printf "%.4f", sum / NR }')
echo "mean loss of the last 20 steps: $loss nats per byte${loss_limit:+ (at most $loss_limit)}"
if [[ -n $loss_limit ]] && ! awk "BEGIN { exit !($loss <= $loss_limit) }"; then
  fail 1 "the mean loss of the last 20 steps is $loss; it must be at most $loss_limit"
fi

part "stages 0 to 3 side by side"
"$bin/zero-train" "${model[@]}" --compare_stages --steps 10 --repeats 5 | tee "$output/stages.txt"
awk '$1 == "relative" {
  printf "stage 3 takes %.2f times the step of stage 0: %s\n", $5,
         $5 <= 1.15 ? "within 1.15" : "MORE than 1.15, is the machine busy?"
}' "$output/stages.txt"

part "continue a prompt"
"$bin/zero-sample" --model "$output" --prompt "In the beginning" --tokens 300

echo
echo "done in $((SECONDS - begin)) s after the build; the model is in $output"
