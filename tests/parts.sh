#!/bin/sh
# parts.sh - the parts of continuous integration, one after the other, each with its time; stops at the first that fails.
set -eu

usage() {
  cat <<'TXT'
Usage: tests/parts.sh [--all] [PART...]
Runs what continuous integration runs: at most 45 minutes on two cores, without packages at first. PART...: these alone.

  --all    also what takes too long for that: every test with clang and with the sanitizers, faults that tests must
           catch, the thread sanitizer, all tests under the emulator, the fuzzers
TXT
}

all=no
case "${1-}" in
  --help | -h) usage; exit 0 ;;
  --all) all=yes; shift ;;
  -*) echo "parts.sh: unexpected argument '$1'" >&2; usage >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."
only=" $* "
begin=$(date +%s)
times=''

# part NAME COMMAND...: no test reads the caller's standard input.
part() {
  name=$1
  shift
  case "$only" in '  ' | *" $name "*) ;; *) return 0 ;; esac
  start=$(date +%s)
  echo "ci: $name"
  code=0
  "$@" </dev/null || code=$?
  times="$times
ci: part $name $(($(date +%s) - start)) s"
  [ "$code" -eq 0 ] && return
  echo "$times"
  echo "ci: FAILED in $name (exit $code)"
  exit "$code"
}
# extra NAME COMMAND...: a part of --all.
extra() {
  [ "$all" = no ] || part "$@"
}

lint() {
  # Not what git lists: a machine that tests need not have git.
  find core data experiments variants tests \( -name '*.[ch]' -o -name '*.inc' \) \
    -exec clang-format --dry-run -Werror {} + &&
    ! LC_ALL=C.UTF-8 grep -rnE --include='*.[ch]' --include='*.inc' '^.{111}' core data experiments variants tests &&
    find .ci/run cmake experiments tests \( -name '*.sh' -o -name run \) -type f -exec shellcheck --severity=warning {} + &&
    pyflakes3 cmake core/python experiments/examples tests
}

# warnings PRESET: of the files of which a preset has no object that is newer than they and all headers; two are generated.
warnings() {
  ./cmake/build.sh "$1" git_info experiments/report_assets.c && python3 - "build/$1" <<'PY'
import concurrent.futures, json, pathlib, shlex, subprocess, sys

FOLDERS = "core", "data", "experiments", "tests", "variants"
headers = max(path.stat().st_mtime for folder in FOLDERS for kind in ("h", "inc") for path in pathlib.Path(folder).rglob(f"*.{kind}"))


def fails(one):
    words = shlex.split(one["command"])
    at = words.index("-o")
    made = pathlib.Path(one["directory"], words[at + 1])
    if made.exists() and made.stat().st_mtime > max(headers, pathlib.Path(one["file"]).stat().st_mtime):
        return False
    words[at : at + 2] = []
    words[words.index("-c")] = "-fsyntax-only"
    return subprocess.run(words, cwd=one["directory"]).returncode != 0


files = json.loads(pathlib.Path(sys.argv[1], "compile_commands.json").read_text())
with concurrent.futures.ThreadPoolExecutor() as pool:
    sys.exit(any(pool.map(fails, files)))
PY
}

# Under the emulator what differs on that processor: the kernels, and each engine once on them. It runs beside the sweep, which
# leaves a part of two cores idle.
sweep_and_neon() {
  mkdir -p build
  ./tests/run.sh --neon --areas 'core variants' >build/neon.log 2>&1 \
    -R '^test_(core_(kernels|exp|bf16|score|causal_patterns|reference)|variants_equivalence)$' &
  code=0
  { ./experiments/sweep.sh && ./tests/docs/quotes.py build/release/experiments/attnlab .; } || code=$?
  wait $! || code=$?
  cat build/neon.log
  return "$code"
}

# With these packages every part of the Python module is tested, or fails.
export ATTN_TESTS_PYTHON=required
part packages ./cmake/bootstrap.sh build tests clang format neon mpi tools python
! command -v ld.gold >/dev/null || export LDFLAGS=-fuse-ld=gold # each preset links 250 programs: in a third of the time
# A preset takes from there what another has compiled with the same options; release, which has no -Werror, from dev.
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CCACHE_NOHASHDIR=1 CCACHE_DIR="$PWD/build/ccache" CCACHE_IGNOREOPTIONS=-Werror
fi
part lint lint
part gcc ./tests/run.sh
# Under the other instruction sets what computes by them, except tests that go through them all: gcc's have.
part isa ./tests/run.sh --isa others -E '^test_core_(properties|environment|guard|exp|decode)$'
# With another compiler the library and tests of what computes are built and run, and everything is looked at; with the
# sanitizers what reads, judges and records is run, too: without tests of minutes, which have run above, and, with the
# sanitizers, of a quarter of a minute.
computes='core variants expression'
sanitized='core variants data expression checks quality results reference training runner'
slow='^test_(core_(numerics|properties|guard|environment|finite|special|exp|decode)|expression_oracles'
judges='checks_(sweeps|universal|nulls|laws|tails|ends|normalised|drawn|features|draws|sketch|entries|floating|budget)'
records='quality_(checks|evaluate|asked)|results_(damaged|file)|reference_census|training_train_study'
sweeps='runner_(cold|faults|locale|nonfinite|progress|provenance|rude|shard|stale|stored|survive|sweep)'
part clang ./tests/run.sh --clang --areas "$computes" -E "$slow)$"
part clang warnings clang
part asan ./tests/run.sh --asan --areas "$sanitized" -E "$slow|core_verify|variants_stored|$judges|$records|$sweeps)$"
# What users are told by must be able to fail; that each suite of tests is, takes as long again.
part mutants ./tests/run.sh --mutants checks
part mpi ./tests/run.sh --mpi
part sweep+neon sweep_and_neon
extra clang-all ./tests/run.sh --clang
extra asan-all ./tests/run.sh --asan
extra mutants-all ./tests/run.sh --mutants
extra tsan ./tests/run.sh --tsan
extra neon-all ./tests/run.sh --neon -R '^test_(core|variants|expression)_'
extra fuzz ./tests/run.sh --fuzz 10
echo "$times"
echo "ci: passed in $(($(date +%s) - begin)) s"
