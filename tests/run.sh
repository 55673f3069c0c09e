#!/bin/sh
# run.sh - installs what is missing, builds, runs every test.
set -eu

usage() {
  cat <<'TXT'
Usage: tests/run.sh [--asan] [--isa NAME] [CTEST-OPTION...]
Installs what is missing, builds with warnings as errors and runs every test.

  --asan        build with the address and undefined-behaviour sanitizers
  --isa NAME    force an instruction set (names: attnlab info)
  --help        this text

Everything else goes to ctest, e.g.  tests/run.sh -R test_cli
TXT
}

preset=dev
while [ $# -gt 0 ]; do
  case "$1" in
    --asan) preset=asan-ubsan ;;
    --isa)
      [ $# -ge 2 ] || { echo "run.sh: --isa needs a name" >&2; exit 2; }
      export ATTN_ISA="$2"
      shift ;;
    --help | -h) usage; exit 0 ;;
    *) break ;;
  esac
  shift
done

cd "$(dirname "$0")/.."
./cmake/bootstrap.sh
./cmake/build.sh "$preset"
cores=$(getconf _NPROCESSORS_ONLN)
# A test program uses two threads.
exec ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$(((cores + 1) / 2))" "$@"
