#!/bin/sh
# run.sh - installs what is missing, builds, runs every test.
set -eu

usage() {
  cat <<'TXT'
Usage: tests/run.sh [--clang | --asan | --tsan | --neon | --mutants [checks] | --mpi | --fuzz [SECONDS]]
                    [--isa NAME] [--areas "AREA..."] [CTEST-OPTION...]
       tests/run.sh --all | --real
Installs what is missing, builds with warnings as errors and runs every test.

  --all         everything that continuous integration runs, and what takes too long for it (tests/parts.sh)
  --real        the Python module and the models against PyTorch, JAX, transformers, tokenizers and gguf of today (tests/real.sh)
  --clang       build with clang in place of cc
  --asan        build with the address and undefined-behaviour sanitizers
  --tsan        the library and its tests with clang's thread sanitizer and its OpenMP (clang, libomp-dev)
  --neon        cross-compile the library for AArch64 and run its tests under qemu-user
  --mpi         build attention over MPI processes (Open MPI) and test it on one to four of them
  --mutants [checks]  build deliberate faults into the library; each must be caught by the check, property or test that it
                names ("checks": those of checks and properties alone)
  --fuzz [SECONDS]  libFuzzer on all that reads files and texts (clang), 10 seconds for each target
  --isa NAME    force an instruction set (names: attnlab info); "all" runs the tests of the core under each in turn,
                "others" under all except the best, which every other run uses
  --areas "core data"  build and run only the tests of these folders of tests/
  --help        this text

Everything else goes to ctest, e.g.  tests/run.sh -R test_cli
TXT
}

preset=dev
each=no areas='' targets='' mutants='^mutants_'
cores=$(getconf _NPROCESSORS_ONLN)
jobs=$((cores + 2)) # a test program uses two threads, but seldom both, and some wait for others
while [ $# -gt 0 ]; do
  case "$1" in
    --all) exec "$(dirname "$0")/parts.sh" --all ;;
    --real)
      "$(dirname "$0")/../cmake/build.sh" dev
      exec "$(dirname "$0")/real.sh" ;;
    --clang) preset=clang ;;
    --asan) preset=asan-ubsan ;;
    --tsan) preset=tsan ;;
    --neon)
      preset=neon
      export ATTN_ISA="${ATTN_ISA:-neon}" ;;
    --mutants)
      preset=mutants
      if [ "${2-}" = checks ]; then targets=attn_mutants mutants='^mutants_(checks|sweep)$'; shift; fi ;;
    --fuzz)
      preset=fuzz
      case "${2-}" in
        '' | *[!0-9]*) ;;
        *) export ATTN_FUZZ_SECONDS="$2"; shift ;;
      esac ;;
    --mpi) preset=mpi jobs=1 ;; # processes that compute beside each other
    --isa)
      [ $# -ge 2 ] || { echo "run.sh: --isa needs a name" >&2; exit 2; }
      case "$2" in all | others) each=$2 ;; *) export ATTN_ISA="$2" ;; esac
      shift ;;
    --areas)
      [ $# -ge 2 ] || { echo "run.sh: --areas needs names of folders" >&2; exit 2; }
      areas=$2
      shift ;;
    --help | -h) usage; exit 0 ;;
    *) break ;;
  esac
  shift
done

cd "$(dirname "$0")/.."
case "$preset" in
  clang | tsan | fuzz) needs=clang ;;
  mpi) needs=mpi ;;
  *) needs='' ;;
esac
# shellcheck disable=SC2086 # one word, or none
./cmake/bootstrap.sh build tests $needs
[ "$preset" != neon ] || ./cmake/aarch64.sh
[ "$each" = no ] || areas=${areas:-core variants}
for area in $areas; do targets="$targets tests_$area"; done
# shellcheck disable=SC2086 # a list of words
./cmake/build.sh "$preset" $targets
run_tests() {
  if [ -n "$areas" ]; then
    set -- -R "^test_($(echo "$areas" | tr -s ' ' '|'))_" "$@"
  fi
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$jobs" "$@"
}
if [ "$preset" = mutants ]; then
  run_tests -V -R "$mutants" "$@"
elif [ "$preset" = fuzz ]; then
  run_tests --stop-on-failure -R '^fuzz_' "$@"
elif [ "$preset" = mpi ]; then
  run_tests -R '^ring' "$@"
elif [ "$each" = no ]; then
  run_tests "$@"
else
  ./cmake/build.sh "$preset" attnlab
  isas=$("build/$preset/experiments/attnlab" info | sed -n 's/^kernels for *//p')
  best=${isas%% *}
  for isa in ${isas:?attnlab info lists no instruction set}; do
    [ "$each" = all ] || [ "$isa" != "$best" ] || continue
    echo "attnlab: instruction set $isa" >&2
    ATTN_ISA=$isa run_tests "$@"
  done
fi
