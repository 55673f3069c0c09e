#!/bin/sh
# sweep.sh - installs what is missing, builds, captures Q, K, V of two layers of the bundled model, runs the default sweep.
set -eu

usage() {
  cat <<'TXT'
Usage: experiments/sweep.sh [--small | --atlas] [RUN-OPTION...]
Installs what is missing, builds, captures queries, keys and values of data/bytelm on the text of LICENSE, runs
experiments/configs/default.yaml into results/default.h5, prints its tables and verdicts and makes a page of them for
a browser, results/default.html. Can be interrupted and started again: finished runs are kept.

  --small    experiments/configs/small.yaml into results/small.h5 and .html, three minutes
  --atlas    experiments/configs/atlas.yaml into results/atlas.h5 and .html, some hours
  --help     this text

Everything else goes to attnlab run, e.g.  experiments/sweep.sh --set grid.n=1Ki,2Ki
(build/release/experiments/attnlab run --help lists the options), except -o, --shard and --dry-run, which are
refused. Exit code 1: a bound is violated; 3: a run failed.
TXT
}

config=default
while [ $# -gt 0 ]; do
  case "$1" in
    --small) config=small ;;
    --atlas) config=atlas ;;
    --help | -h) usage; exit 0 ;;
    *) break ;;
  esac
  shift
done

for option; do
  case "$option" in
    --shard* | -o* | --output* | --dry-run) echo "sweep.sh: $option: use attnlab run" >&2; exit 2 ;;
  esac
done

cd "$(dirname "$0")/.."
. experiments/captures.sh

results=results/$config.h5
# Says what the sweep takes, and calibrates the machine, so that the results can tell estimates from facts.
"$attnlab" run "experiments/configs/$config.yaml" -o "$results" --dry-run "$@" >/dev/null
code=0
"$attnlab" run "experiments/configs/$config.yaml" -o "$results" "$@" || code=$?
case $code in 0 | 1 | 3) ;; *) exit "$code" ;; esac

"$attnlab" check "$results" || code=$?
"$attnlab" report "$results" -o "${results%.h5}.html"
echo "results: $results"
echo "report: ${results%.h5}.html"
exit "$code"
