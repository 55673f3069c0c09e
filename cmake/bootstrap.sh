#!/bin/sh
# bootstrap.sh - installs what the build needs and this machine lacks, from the distribution's packages.
# Called by tests/run.sh, experiments/sweep.sh and others; quiet when nothing is missing.
set -eu

usage() {
  cat <<'TXT'
Usage: cmake/bootstrap.sh [--help] PURPOSE...
Installs what attnlab needs for the purposes: build, tests, clang, format, neon, mpi, fuzz, tools (what the tests of
clusters, plots, packages and the report try for real, and leave out where it is missing), python (what the tests of the
Python module need), models (pre-trained ones), peers, mutate (random faults).
Debian and Ubuntu: through apt-get, as root or with sudo. On other systems it says what is missing and exits 69. Does
nothing, and says nothing, when nothing is missing.
TXT
}

case "${1-}" in --help | -h) usage; exit 0 ;; esac

# For which purpose, what to look for (a command, a header of the C library, a pkg-config module, a file), the Debian
# package that has it.
needs='
build command cc gcc
build header stdio.h libc6-dev
build command cmake cmake
build command ninja ninja-build
build command pkg-config pkg-config
build module fftw3 libfftw3-dev
build module fftw3f libfftw3-dev
build module gsl libgsl-dev
build module hdf5 libhdf5-dev
build module jansson libjansson-dev
build module libpcre2-8 libpcre2-dev
build header uninorm.h libunistring-dev
build module nettle nettle-dev
build module zlib zlib1g-dev
build module yaml-0.1 libyaml-dev
tests module criterion libcriterion-dev
clang command clang clang
clang file /usr/share/doc/libomp-dev libomp-dev
format command clang-format clang-format
format command shellcheck shellcheck
format command pyflakes3 pyflakes3
mutate command llvm-cov llvm
mutate file /usr/share/doc/libclang-rt-dev libclang-rt-dev
neon command aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
neon command qemu-aarch64 qemu-user
mpi command mpicc libopenmpi-dev
mpi command mpirun openmpi-bin
tools command ccache ccache
tools command dpkg-shlibdeps dpkg-dev
tools command file file
tools file /usr/share/doc/python3-venv python3-venv
tools file /usr/lib/python3/dist-packages/wheel python3-wheel
tools command patchelf patchelf
tools command parallel parallel
tools command mpirun openmpi-bin
tools command jube jube
tools command chromium chromium
tools command pdftoppm poppler-utils
tools file /usr/lib/python3/dist-packages/xarray python3-xarray
tools file /usr/lib/python3/dist-packages/netCDF4 python3-netcdf4
tools file /usr/lib/python3/dist-packages/matplotlib python3-matplotlib
tools command Rscript r-base-core
tools file /usr/lib/R/site-library/ncdf4 r-cran-ncdf4
tools command gnuplot gnuplot-nox
tools command octave-cli octave
tools file /var/lib/dpkg/info/octave-netcdf.list octave-netcdf
tools command gs ghostscript
tools file /usr/share/fonts/opentype/freefont/FreeSans.otf fonts-freefont-otf
python file /usr/lib/python3/dist-packages/numpy python3-numpy
python file /usr/lib/python3/dist-packages/torch python3-torch
python file /usr/lib/python3/dist-packages/pandas python3-pandas
python file /usr/lib/python3/dist-packages/h5py python3-h5py
python file /usr/lib/python3/dist-packages/matplotlib python3-matplotlib
models command npm npm
models file /usr/lib/python3/dist-packages/pip python3-pip
models file /usr/lib/python3/dist-packages/numpy python3-numpy
models file /usr/lib/python3/dist-packages/onnx python3-onnx
peers module openblas libopenblas-dev
peers file /usr/lib/python3/dist-packages/numpy python3-numpy
peers command node nodejs
peers command npm npm
'
[ $# -gt 0 ] || { echo "bootstrap.sh: for which purpose?" >&2; usage >&2; exit 2; }
for purpose; do
  case "$needs" in
    *"
$purpose "*) ;;
    *) echo "bootstrap.sh: no such purpose: '$purpose'" >&2; usage >&2; exit 2 ;;
  esac
done
purposes=" $* "

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
  while read -r purpose kind what package; do
    case "$purposes" in *" ${purpose:-none} "*) ;; *) continue ;; esac
    if present "$kind" "$what"; then continue; fi
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
  give_up "missing:$names; install these (experiments/docs/install.md has their names on some systems)"

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
