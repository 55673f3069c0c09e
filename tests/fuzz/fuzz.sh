#!/bin/sh
# fuzz.sh FUZZER SEEDS FOUND - runs a fuzzer for $ATTN_FUZZ_SECONDS (10). It starts from the inputs in both directories, and
# leaves in FOUND those that reach new code and, beside it, those that fail.
set -eu
mkdir -p "$3" "$3.tmp"
export TMPDIR="$3.tmp" OMP_NUM_THREADS=1
exec "$1" -max_total_time="${ATTN_FUZZ_SECONDS:-10}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
  -artifact_prefix="$3-" "$3" "$2"
