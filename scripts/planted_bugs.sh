#!/usr/bin/env bash
# Plants the bugs of tests/planted one at a time in a copy of the tree, and requires that the test
# named with each fails. The first lines of a patch say what it is:
#   Bug: one line
#   Program: the test program to build
#   Case: the case that must fail (and that passes without the bug)
#   Preset: of CMake; release if the line is not there
#   Needs: what a machine must have to build the program; without the line, nothing
set -euo pipefail
export LC_ALL=C
unset ZERO_TEST_SEED

jobs=${ZERO_JOBS:-$(nproc)}
limit=${ZERO_PLANTED_SECONDS:-300}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$root/build/planted
tree=$work/tree
usage() {
  cat <<USAGE
usage: ${0##*/} [--list] [--help] [NAME...]
  NAME     a patch of tests/planted, without .patch (all)
  --list   names and bugs, nothing else
environment:
  ZERO_JOBS              compilations at once (now: $jobs)
  ZERO_PLANTED_SECONDS   limit of each test run (now: $limit)
USAGE
}
names=()
list=
for option in "$@"; do
  case $option in
    --list) list=yes ;;
    --help | -h) usage; exit 0 ;;
    -*) echo "${0##*/}: unknown option '$option'" >&2; usage >&2; exit 2 ;;
    *) names+=("$option") ;;
  esac
done
cd "$root"
if [[ ${#names[@]} -eq 0 ]]; then
  for patch in tests/planted/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi

# field <name> <field> [default]
field() {
  local value
  value=$(sed -n "/^--- /q; s/^$2: //p" "tests/planted/$1.patch")
  value=${value:-${3:-}}
  if [[ -z $value ]]; then
    echo "tests/planted/$1.patch: no line '$2: ...' before the patch" >&2
    exit 1
  fi
  printf '%s' "$value"
}

for name in "${names[@]}"; do
  if [[ ! -f tests/planted/$name.patch ]]; then
    echo "${0##*/}: there is no tests/planted/$name.patch; see --list" >&2
    exit 2
  fi
  [[ -z $list ]] || printf '%-26s %s\n' "$name" "$(field "$name" Bug)"
done
[[ -z $list ]] || exit 0

# The copy keeps times, so that little is built again, but files that a run before may have left
# changed are built anew in any case.
rm -rf "$tree"
mkdir -p "$tree"
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  git ls-files -co --exclude-standard -z |
    while IFS= read -r -d '' file; do
      if [[ -e $file ]]; then printf '%s\0' "$file"; fi
    done | tar --null -T - -cf - | tar -xf - -C "$tree"
else
  tar --exclude=./build --exclude=./out -cf - . | tar -xf - -C "$tree"
fi
sed -n 's|^+++ b/||p' tests/planted/*.patch | sort -u | while read -r file; do
  if [[ -e $tree/$file ]]; then touch "$tree/$file"; fi
done

log=$work/log.txt
failures=()
caught=0
skipped=0
declare -A configured=() targets=() passes=()

# report <name> <text>: one line of the table.
report() { printf '%-26s %s\n' "$1" "$2"; }
fail() {
  report "$1" "FAILED: $2"
  failures+=("$1: $2")
  [[ ! -s $log ]] || { tail -n 15 "$log" | sed 's/^/    /'; cp "$log" "$work/$1.log"; }
}

configure() {
  [[ -z ${configured[$1]:-} ]] || return 0
  (cd "$tree" && cmake --preset "$1" -B "$work/$1") >"$log" 2>&1 || {
    cat "$log" >&2
    exit 1
  }
  configured[$1]=yes
  targets[$1]=$'\n'$(cmake --build "$work/$1" --target help)
}
build() { cmake --build "$work/$1" --parallel "$jobs" --target "$2" >"$log" 2>&1; }
# The exit status of the case; 124 if it took too long.
run() {
  { timeout --kill-after=10 "$limit" "$work/$1/bin/$2" -w NoTests "$3"; } >"$log" 2>&1
}

for name in "${names[@]}"; do
  patch=$root/tests/planted/$name.patch
  program=$(field "$name" Program)
  case_name=$(field "$name" Case)
  preset=$(field "$name" Preset release)
  configure "$preset"
  needs=$(field "$name" Needs nothing)
  if [[ ${targets[$preset]} != *$'\n'"$program: "* ]]; then
    : >"$log"
    if [[ $needs == nothing ]]; then
      fail "$name" "there is no program $program"
    else
      report "$name" "skipped: no $program without $needs"
      skipped=$((skipped + 1))
    fi
    continue
  fi
  : >"$log"
  key="$preset/$program/$case_name"
  if [[ -z ${passes[$key]:-} ]]; then
    if ! build "$preset" "$program"; then
      fail "$name" "$program does not build without the bug"
      continue
    fi
    if ! run "$preset" "$program" "$case_name"; then
      fail "$name" "'$case_name' does not pass without the bug"
      continue
    fi
    passes[$key]=yes
  fi
  if ! patch -d "$tree" -p1 --forward --fuzz=2 --no-backup-if-mismatch -i "$patch" >"$log" 2>&1; then
    fail "$name" "the patch does not apply: make it again"
  elif ! build "$preset" "$program"; then
    fail "$name" "does not compile with the bug"
  else
    status=0
    begin=$SECONDS
    run "$preset" "$program" "$case_name" || status=$?
    if [[ $status -eq 0 ]]; then
      fail "$name" "not caught: '$case_name' passes"
    elif [[ $status -eq 124 || $status -eq 137 ]]; then
      fail "$name" "'$case_name' hangs instead of failing"
    else
      report "$name" "caught in $((SECONDS - begin)) s by $program: $case_name"
      caught=$((caught + 1))
    fi
  fi
  # Back to what it was, with times of now.
  while read -r file; do
    rm -f "$tree/$file.rej"
    cp "$root/$file" "$tree/$file"
  done < <(sed -n 's|^+++ b/||p' "$patch")
done

echo
echo "$caught of ${#names[@]} planted bugs caught, $skipped skipped"
if [[ ${#failures[@]} -gt 0 ]]; then
  printf '%s\n' "${failures[@]}" >&2
  exit 1
fi
