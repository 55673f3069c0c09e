#!/bin/sh
# eval.sh - installs what is missing, builds, fetches a pre-trained model, and evaluates it with its attention replaced.
set -eu

usage() {
  cat <<'TXT'
Usage: experiments/eval.sh [--caches] [EVAL-OPTION...]
Installs what is missing, builds, fetches MiniMind2-Small (data/models/get.sh minimind2, 24 MB), and runs it with its
attention replaced by eight methods: at three budgets in windows of 1024 positions, at the middle budget in 512 and 2048;
on a text (the licences in /usr/share/common-licenses), on copying and on recall. Runs are added to results/eval.h5, the
tables go to results/eval.txt and the page for a browser to results/eval.html. Can be interrupted and started again: what is
there is not repeated.

  --caches   caches instead, on the text: eleven policies at three budgets, eleven stores, and both, in windows of 512
             of which the first half is a prompt, into results/caches.h5, .txt and .html

Everything else goes to attnlab eval, e.g.  experiments/eval.sh --windows 32
(build/release/experiments/attnlab eval --help lists the options). Exit code 1: a check is violated; 3: a run failed.
TXT
}

name=eval specs=windows
case "${1-}" in
  --help | -h) usage; exit 0 ;;
  --caches) name=caches specs=caches; shift ;;
esac
cd "$(dirname "$0")/.."
./cmake/bootstrap.sh build models
./cmake/build.sh release
./data/models/get.sh minimind2
attnlab=build/release/experiments/attnlab
licences=/usr/share/common-licenses
# Threads that wait give way: others may use the machine.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
mkdir -p results
text=build/models/licences.txt
cat "$licences/GPL-2" "$licences/GPL-3" "$licences/LGPL-2.1" "$licences/Artistic" >"$text"

# Keys that a query reads (performer: features): 64, 128, 256.
windows() {
  printf -- '--task %s ' text copy recall
  for keys in "$@"; do
    printf -- '-v %s ' "streaming:sink=0,window=$keys" "streaming:sink=4,window=$((keys - 4))" "topk:k=$keys" \
      "topk:k=$keys,by=sparq" "pages:budget=$keys" "pages:page=32,budget=$keys,score=mean" \
      "bigbird:block=16,window=3,global=1,random=$((keys / 16 - 3))" "performer:features=$keys"
  done
}

# Keys that a cache holds: 32, 64, 128. A word a list item: no blanks within a spec.
caches() {
  printf -- '--task %s ' text:skip=256
  for keys in "$@"; do
    for score in random knorm keydiff tova h2o h2o_mean snapkv lagkv expected exact; do
      printf -- '--cache %s ' "evict:score=$score,budget=$keys,recent=16"
    done
    printf -- '--cache %s ' "streaming:sink=4,window=$((keys - 4))" "evict:score=snapkv,budget=$keys,recent=16|store:v=q4_0"
  done
  for type in q8_0 fp8 int4 q4_0 int3 int2; do printf -- '--cache %s ' "store:k=$type,v=$type"; done
  printf -- '--cache %s ' rotated turbo:bits=3 turbo:bits=4 kivi:bits=2,residual=32 kivi:bits=4,residual=32
}

tables=results/$name.txt
: >"$tables"
code=0
# evaluate LENGTHS BUDGETS OPTION...
evaluate() {
  lengths=$1 budgets=$2
  shift 2
  # shellcheck disable=SC2046,SC2086 # lists of words
  "$attnlab" eval build/models/minimind2 --text "$text" --windows 8 -n "$lengths" -o "results/$name.h5" \
    $($specs $budgets) "$@" >>"$tables" || code=$?
  case $code in 0 | 1 | 3) ;; *) exit "$code" ;; esac
}
if [ "$name" = caches ]; then
  evaluate 512 '32 64 128' "$@"
else
  evaluate 1024 '64 128 256' "$@"
  evaluate 512,2048 128 "$@"
fi
"$attnlab" report "results/$name.h5" -o "results/$name.html"
cat "$tables"
echo "results: results/$name.h5"
echo "tables: $tables"
echo "page: results/$name.html"
exit "$code"
