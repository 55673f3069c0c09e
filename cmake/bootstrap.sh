#!/bin/sh
# bootstrap.sh - installs what the build needs and this machine lacks, from the distribution's packages.
# Called by tests/run.sh, experiments/sweep.sh and experiments/peers/run.sh; quiet when nothing is missing.
set -eu

usage() {
  cat <<'TXT'
Usage: cmake/bootstrap.sh [--help] [KIND WHAT PACKAGE]...
Installs what attnlab needs to be built and tested: a C compiler, cmake, ninja, pkg-config, FFTW (double and
single), GSL, HDF5, Criterion, jansson, libyaml, Chart.js. Debian and Ubuntu: through apt-get, as root or with sudo. On
other systems it says what is missing and exits 69. Does nothing, and says nothing, when nothing is missing.
More needs may follow: a KIND (command, header, module, file), its name, and the Debian package that has it, as in
  cmake/bootstrap.sh module openblas libopenblas-dev
TXT
}

case "${1-}" in
  '' | command | header | module | file) ;;
  --help | -h) usage; exit 0 ;;
  *) echo "bootstrap.sh: unexpected argument '$1'" >&2; usage >&2; exit 2 ;;
esac
[ $(($# % 3)) -eq 0 ] || { echo "bootstrap.sh: a need is KIND WHAT PACKAGE" >&2; exit 2; }

# What to look for (a command, a header of the C library, a pkg-config module, a file), the Debian package that has it.
needs='
command cc gcc
header stdio.h libc6-dev
command cmake cmake
command ninja ninja-build
command pkg-config pkg-config
module fftw3 libfftw3-dev
module fftw3f libfftw3-dev
module gsl libgsl-dev
module hdf5 libhdf5-dev
module criterion libcriterion-dev
module jansson libjansson-dev
module yaml-0.1 libyaml-dev
file /usr/share/javascript/chart.js/chart.min.js libjs-chart.js
'
while [ $# -gt 0 ]; do
  needs="$needs$1 $2 $3
"
  shift 3
done

present() {
  case "$1" in
    command) command -v "$2" ;;
    header) echo "#include <$2>" | cc -E - ;;
    module) pkg-config --exists "$2" ;;
    file) [ -e "$2" ] ;;
  esac >/dev/null 2>&1
}

# Two lists of what is missing: as a person reads it, and as Debian packages.
list_missing() {
  names='' packages=''
  while read -r kind what package; do
    if [ -z "$kind" ] || present "$kind" "$what"; then continue; fi
    names="$names $what"
    case " $packages " in *" $package "*) ;; *) packages="$packages $package" ;; esac
  done <<LIST
$needs
LIST
}

give_up() {
  echo "attnlab: $1" >&2
  exit 69 # EX_UNAVAILABLE
}

list_missing
[ -n "$names" ] || exit 0

command -v apt-get >/dev/null ||
  give_up "missing:$names; install these (the table in README.md has the package names of some systems)"

as_root=''
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || give_up "missing:$names; as root, run: apt-get install$packages"
  as_root=sudo
  [ -t 0 ] || as_root='sudo -n'
fi

echo "attnlab: installing$packages" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
  # shellcheck disable=SC2086 # as_root is a command with arguments, or nothing
  $as_root env DEBIAN_FRONTEND=noninteractive "$@" >"$log" 2>&1 </dev/null && return
  cat "$log" >&2
  give_up "'$*' failed; missing:$names"
}
quietly apt-get -q update
# shellcheck disable=SC2086 # one word per package
quietly apt-get -q install -y --no-install-recommends $packages

list_missing
[ -z "$names" ] || give_up "still missing after the installation:$names"
