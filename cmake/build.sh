#!/bin/sh
# build.sh PRESET - configures and builds a preset into build/PRESET: how far it is, or everything if it fails.
set -eu
preset=$1
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
fail() {
  cat "$log" >&2
  echo "attnlab: the build failed" >&2
  exit 1
}
cmake --preset "$preset" >"$log" 2>&1 || fail
# The steps that a build would take, one a line.
steps=$(cmake --build --preset "$preset" -- -n 2>/dev/null | grep -c '^\[' || true)
[ "$steps" -gt 5 ] && echo "attnlab: building build/$preset: $steps steps, of which the kernels take longest (a minute or two)" >&2
if [ -t 2 ]; then
  # Ninja shows its step on one line of a terminal.
  cmake --build --preset "$preset" >&2 || exit 1
else
  cmake --build --preset "$preset" >"$log" 2>&1 || fail
fi
