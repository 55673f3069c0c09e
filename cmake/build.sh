#!/bin/sh
# build.sh PRESET [TARGET...] - configures and builds a preset, or these targets of it, into build/PRESET: how far it is,
# or everything if it fails.
set -eu
preset=$1
shift
[ $# -eq 0 ] || set -- --target "$@"
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
fail() {
  cat "$log" >&2
  echo "attnlab: the build failed" >&2
  exit 1
}
cmake --preset "$preset" >"$log" 2>&1 || fail
first=''
[ -e "build/$preset/experiments/attnlab" ] || first=': a minute or two for the first time, most of it for the kernels'
echo "attnlab: building build/$preset$first" >&2
if [ -t 2 ]; then
  # Ninja shows its step on one line of a terminal.
  cmake --build --preset "$preset" "$@" >&2 || exit 1
else
  cmake --build --preset "$preset" "$@" >"$log" 2>&1 || fail
fi
