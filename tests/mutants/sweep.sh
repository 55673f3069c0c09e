#!/bin/sh
# sweep.sh ATTNLAB - sweeps by a program that has mutants: `attnlab check` exits 0 without one, and with one exits 1 and
# names the check that the mutant violates; of a promise that nothing proves it warns, and exits 0.
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
  - hyper: {exact_below: 0, block: 8, sample: 20}
  - sample: {guarantee: clt, base: 32, eps: 0.2, replacement: yes}
datasets: [gaussian]
timing: {min_time: 0.0005, max_time: 0.002, warmup: 0.0002, sample_time: 1e-4}
YAML

fails=0
expect() { # MUTANT EXIT WHAT: VIOLATED or WARNING, and the check
  code=0
  ATTN_MUTANT=$1 "$attnlab" run sweep.yaml -o "results-$1.h5" --quiet >run.log 2>&1 || code=$?
  [ "$code" -eq "$2" ] || { cat run.log; exit 2; } # the exit codes of run and check agree
  code=0
  "$attnlab" check "results-$1.h5" >check.log 2>&1 || code=$?
  said=$(grep -c "^${3:-VIOLATED\|^WARNING}" check.log || true)
  if [ "$code" -eq "$2" ] && if [ "$3" ]; then [ "$said" -gt 0 ]; else [ "$said" -eq 0 ]; fi; then
    echo "${1:-no mutant}: exit $code${3:+, $3}"
  else
    cat check.log
    echo "${1:-no mutant}: exit $code, expected $2${3:+ and $3}"
    fails=1
  fi
}
expect '' 0 ''
expect scale-missing 1 'VIOLATED FP-2'
expect mask-ignored 1 'VIOLATED SP-0'
expect query-stabiliser-kept 1 'VIOLATED FAV-6'
expect law-head-drawn-again 1 'VIOLATED LAW-5'
expect sample-quantile-of-one-side 0 'WARNING VA-1'
exit $fails
