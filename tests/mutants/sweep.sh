#!/bin/sh
# sweep.sh ATTNLAB - sweeps by a program that has mutants: `attnlab check` exits 0 without one, and with one exits 1 and
# names the check that the mutant violates.
set -eu
attnlab=$1
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
cd "$room"
cat >sweep.yaml <<'YAML'
schema: 1
grid: {n: [64, 130], heads: 2, d: 8, causal: [no, yes]}
variants:
  - tiled: {block_k: 16}
  - longformer: {window: 8, global: 2}
  - performer: {features: 32}
datasets: [gaussian]
timing: {min_time: 0.0005, max_time: 0.002, warmup: 0.0002, sample_time: 1e-4}
YAML

fails=0
expect() { # MUTANT EXIT CHECK
  code=0
  ATTN_MUTANT=$1 "$attnlab" run sweep.yaml -o "results-$1.h5" --quiet >run.log 2>&1 || code=$?
  [ "$code" -eq "$2" ] || { cat run.log; exit 2; } # the exit codes of run and check agree
  code=0
  "$attnlab" check "results-$1.h5" >check.log 2>&1 || code=$?
  if [ "$code" -eq "$2" ] && { [ -z "$3" ] || grep -q "^VIOLATED $3" check.log; }; then
    echo "${1:-no mutant}: exit $code${3:+, $3 violated}"
  else
    cat check.log
    echo "${1:-no mutant}: exit $code, expected $2${3:+ and a violation of $3}"
    fails=1
  fi
}
expect '' 0 ''
expect scale-missing 1 FP-2
expect mask-ignored 1 SP-0
expect query-stabiliser-kept 1 FAV-6
exit $fails
