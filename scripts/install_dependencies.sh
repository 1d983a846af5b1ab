#!/usr/bin/env bash
# Installs the Debian packages that building and testing need. Quick when nothing is missing.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache git
  libabsl-dev nlohmann-json3-dev libhwy-dev  # the library
  libeigen3-dev libdnnl-dev                  # products of the examples
  libgloo-dev                                # ranks as processes on CPUs
  liburing-dev                               # many requests to a disk at once
  catch2 openmpi-bin bible-kjv               # tests, and text to train on
)

if [[ $# -gt 0 ]]; then
  echo "usage: ${0##*/}   (no options)"
  [[ $1 == --help || $1 == -h ]] && exit 0
  exit 2
fi

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "${0##*/}: this is not a Debian-like system with apt-get." >&2
  echo "Install what these packages hold by other means: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "dependencies: all installed"
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "${0##*/}: not root and no sudo. Missing packages: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "dependencies: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" >"$log" 2>&1; then
    cat "$log" >&2
    echo "${0##*/}: failed: $*" >&2
    exit 1
  fi
}
quietly apt-get update -q
quietly apt-get install -y -q --no-install-recommends "${missing[@]}"
