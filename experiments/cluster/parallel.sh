#!/bin/sh
# parallel.sh - a sweep by GNU parallel, one shard a job, and the merge:
#   experiments/cluster/parallel.sh SHARDS CONFIG.yaml NAME.h5 [PARALLEL-OPTION...]
# One job at a time on a machine (-j1): what is being timed must not share its cores. Over machines that share
# the directory, add  --sshlogin node1,node2 --workdir .
set -eu

attnlab=${ATTNLAB:-build/release/experiments/attnlab}
shards=$1 config=$2 output=$3
shift 3
failed=0
seq 0 $((shards - 1)) |
  parallel -j1 "$@" "$attnlab" run "$config" -o "$output" --shard "{}/$shards" --quiet || failed=$?
"$attnlab" merge -o "$output" "${output%.h5}".*-of-"$shards".jsonl
[ "$failed" -eq 0 ] || echo "parallel.sh: $failed of $shards shards did not end with 0; see $output" >&2
exit "$failed"
