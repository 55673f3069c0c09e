#!/bin/sh
# mpirun.sh - a sweep by Open MPI, one shard a rank, and the merge:
#   experiments/cluster/mpirun.sh RANKS CONFIG.yaml NAME.h5 [MPIRUN-OPTION...]
# One rank a machine, free to use all of its cores; the directory is shared. For a try on one machine, where
# the times then mean nothing, add  --map-by :OVERSUBSCRIBE
set -eu

attnlab=${ATTNLAB:-build/release/experiments/attnlab}
ranks=$1 config=$2 output=$3
shift 3
[ $# -gt 0 ] || set -- --map-by ppr:1:node
failed=0
# A shard with a violated bound or a failed run exits with 1 or 3, which must not end the others.
mpirun -n "$ranks" --bind-to none --mca orte_abort_on_non_zero_status 0 "$@" \
  "$attnlab" run "$config" -o "$output" --shard auto --quiet || failed=$?
"$attnlab" merge -o "$output" "${output%.h5}".*-of-"$ranks".jsonl
exit "$failed"
