#!/bin/sh
# plots.sh ATTNLAB FAULT - tries each loader of experiments/plots/ whose tool is here on a fresh results file: what it says
# it plots must agree with attnlab export --csv, and the picture must have marks. FAULT: the plug-in of fault.c, for
# violated bounds. Exit code 77: no Python with xarray and matplotlib or no pdftoppm, which look at the pictures.
set -eu

attnlab=$1
fault=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
plots=$root/experiments/plots
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here"
export MPLCONFIGDIR="$here"

fail() {
  echo "plots.sh: $1" >&2
  exit 1
}

# The first python3 on the path may be one without the system's modules.
python=''
for candidate in /usr/bin/python3 python3; do
  if [ -z "$python" ] && "$candidate" -c 'import xarray, netCDF4, matplotlib' 2>/dev/null; then python=$candidate; fi
done
if [ -z "$python" ] || ! command -v pdftoppm >/dev/null; then
  echo "plots.sh: no Python with xarray, netCDF4 and matplotlib, or no pdftoppm: the loaders are not tried"
  exit 77
fi

cat >x.yaml <<'YAML'
schema: 1
grid: {n: [64, 128, 256], heads: 1, d: 16, causal: [no, yes]}
variants: [full, tiled, longformer: {window: [16, 32]}, topk: {k: [4, 8]}, "longformer:window=8 + sample:count=4", linformer: {k: 32, seed: [0, 1]}, fault: {mode: wrong}]
datasets: [gaussian, gaussian: {std_q: 2}]
threads: 1
cache: [warm, cold]
timing: {min_time: 0.001, max_time: 0.01, warmup: 0.0005, samples: 4}
YAML
code=0
"$attnlab" run x.yaml -o x.h5 --plugin "$fault" --quiet || code=$?
[ "$code" -eq 1 ] || fail "the sweep ended with $code, not with a violated bound"
"$attnlab" export --csv x.h5 >x.csv
# Of problems that differ no median is taken.
"$attnlab" run x.yaml -o y.h5 --set grid.score='[none, softcap=2]' --set grid.causal=no --set cache=warm --plugin "$fault" --quiet || [ $? -eq 1 ]

# expect COLUMN CAUSAL DATASET UNIT - the line that a loader of that column prints; DATASET: its number.
expect() {
  "$python" - "$@" <<'PY'
import csv, sys
column, causal, dataset, unit = sys.argv[1:]
rows = [r for r in csv.DictReader(open("x.csv")) if (r["status"], r["cache_state"], r["causal"]) == ("ok", "warm", causal)]
name = sorted({r["dataset"] for r in rows})[int(dataset)]
rows = [r for r in rows if r["dataset"] == name]
values = [float(r[column]) for r in rows if r[column]]
count = len(values) if unit == "timed" else len(rows)
print(f"{count} runs of {name}: {min(values):.4g} to {max(values):.4g}{' s' if column == 'time_median' else ''}")
PY
}

# look PICTURE HUES [red] - each of its pages must have marks of that many hues, or more; red: and violated bounds in red.
look() {
  case "$1" in
    *.pdf) rm -f page-*.png; pdftoppm -r 60 -png "$1" page; set -- "$2" "${3-}" page-*.png ;;
    *) set -- "$2" "${3-}" "$1" ;;
  esac
  "$python" - "$@" <<'PY'
import sys
import matplotlib.colors, matplotlib.image, numpy
hues, red, pages = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
for page in pages:
    pixels = matplotlib.image.imread(page)[:, :, :3].reshape(-1, 3)
    hsv = matplotlib.colors.rgb_to_hsv(pixels[numpy.ptp(pixels, axis=1) > 0.3])
    found = sum(numpy.bincount((hsv[:, 0] * 24).astype(int), minlength=25) > 5)
    assert found >= hues, f"{page}: marks of {found} hues, not of {hues}"
    reds = ((pixels > 0.98) == (True, False, False)).all(axis=1) & (pixels[:, 1:] < 0.02).all(axis=1)
    assert not red or reds.sum() > 20, f"{page}: no bound is violated"
PY
}

# said LINE... - what the loader just run printed, into the file named said.
said() {
  printf '%s\n' "$@" | cmp -s - said || fail "$tool: expected '$*', got '$(cat said)'"
  echo "$tool: $(head -n 1 said)"
}

tool=figures.py
for causal in 0 1; do
  word=$([ "$causal" -eq 0 ] || echo causal)
  "$python" "$plots/figures.py" x.h5 "figures$causal.pdf" ${word:+"$word"} >said
  said "$(expect time_median "$causal" 0 '')" "$(expect time_median "$causal" 1 '')"
  look "figures$causal.pdf" 2
  [ "$(ls page-*.png | wc -l)" -eq 18 ] || fail "figures.py: not nine pages for each of two datasets"
  for page in 05 14; do look "page-$page.png" 3 red; done
done
"$python" "$plots/figures.py" y.h5 y.pdf >said
[ "$(wc -l <said)" -eq 4 ] || fail "figures.py: $(cat said)"

# The exponents of the first figure are those of the report.
"$attnlab" report x.h5 -o x.html
for page in 1 10; do pdftotext -f "$page" -l "$page" figures0.pdf -; done | sed -n 's/.* n^\(-\{0,1\}[0-9.]*\)$/\1/p' >drawn
"$python" - <<'PY'
import json, re
data = json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', open("x.html").read(), re.S)[1])
groups = [group for group in data["groups"] if (group["causal"], group["cache"]) == ("not causal", "warm")]
known = sorted(line["time"][0] for group in groups for line in group["lines"] if line["time"][0] is not None)
drawn = sorted(map(float, open("drawn")))
assert len(known) == len(drawn) > 6, (known, drawn)
assert all(abs(a - b) < 0.006 for a, b in zip(known, drawn)), (known, drawn)
PY

tool=plot.R
if Rscript -e 'library(ncdf4)' >/dev/null 2>&1; then
  Rscript "$plots/plot.R" x.h5 r.pdf >said
  said "$(expect time_median 0 0 timed)"
  look r.pdf 3
  Rscript "$plots/plot.R" y.h5 r.pdf >said
  pdftotext r.pdf - | grep -q 'tiled softcap=2' || fail "plot.R: no line for a problem apart"
else
  echo "$tool: no R with ncdf4: not tried"
fi

tool=plot.gp
if command -v gnuplot >/dev/null; then
  gnuplot -e "csv='x.csv'; out='gp.png'" "$plots/plot.gp" 2>said
  said "$(expect time_median 0 0 timed | tr , ';')"
  look gp.png 3
else
  echo "$tool: no gnuplot: not tried"
fi

tool=plot_attnlab.m
if octave-cli --eval 'pkg load netcdf' >/dev/null 2>&1 && command -v gs >/dev/null; then
  octave-cli --eval "pkg load netcdf; addpath('$plots'); plot_attnlab('x.h5', 'm.png', 1)" >said 2>octave.log || fail "$(cat octave.log)"
  said "$(expect err_rel_fro 0 1 '' | sed 's/of [^ ]*:/of dataset 1:/;s/of gaussian[^ ]*/of dataset 1:/')"
  look m.png 4
else
  echo "$tool: no Octave with octave-netcdf and Ghostscript: not tried"
fi
