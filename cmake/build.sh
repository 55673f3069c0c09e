#!/bin/sh
# build.sh PRESET - configures and builds a preset into build/PRESET; one line, or everything if it fails.
set -eu
preset=$1
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "attnlab: building build/$preset" >&2
if ! { cmake --preset "$preset" && cmake --build --preset "$preset"; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "attnlab: the build failed" >&2
  exit 1
fi
