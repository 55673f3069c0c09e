#!/bin/sh
# Usage: experiments/leaderboard/run.sh [--add SPEC | --add python:MODULE.FUNCTION | --capture QKV.h5]...
# Installs what is missing, builds, runs v1.yaml into results/leaderboard-v1.h5, two minutes, and writes the table of README.md.
# A SPEC may have lists: 'topk:k=[26,53,108],by=sparq'. What is there is not repeated; what was added stays in the results.
set -eu

variants='' datasets='' plugins=''
while [ $# -gt 0 ]; do
  case "$1 ${2-}" in
    '--add python:'*) plugins="$plugins --plugin $2" variants="$variants  - ${2##*.}\n" ;;
    '--add '?*) variants="$variants  - \"$2\"\n" ;;
    '--capture '?*) datasets="$datasets  - captured: {file: \"$(realpath "$2")\"}\n" ;;
    *) sed -n '2,4s/^# //p' "$0"; [ "$1" = --help ] && exit || exit 2 ;;
  esac
  shift 2
done

from=$PWD
cd "$(dirname "$0")/../.."
export PYTHONPATH="$from:$PWD/core/python${PYTHONPATH:+:$PYTHONPATH}"
. experiments/captures.sh
here=experiments/leaderboard config=build/leaderboard-v1.yaml results=results/leaderboard-v1.h5
awk -v variants="$variants" -v datasets="$datasets" \
  '{ print } /^variants:/ { printf "%s", variants } /^datasets:/ { printf "%s", datasets }' $here/v1.yaml >$config
# shellcheck disable=SC2086 # a list of options
"$attnlab" run $config -o $results $plugins || case $? in 1 | 3) ;; *) exit 1 ;; esac
"$attnlab" export --csv $results >build/leaderboard.csv
{ sed '/^|/,$d' $here/README.md; python3 $here/table.py <build/leaderboard.csv; } >build/leaderboard.md
mv build/leaderboard.md $here/README.md
cat $here/README.md
