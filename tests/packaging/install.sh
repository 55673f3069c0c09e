#!/bin/sh
# install.sh BUILD SOURCE - installs a build to a fresh prefix and moves that, makes the examples with its
# pkg-config and its CMake package and with attnlab as a part of their project, and runs them.
set -eu
build=$1
source=$2
examples=$source/experiments/examples
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here"

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

cmake --install "$build" --prefix "$here/first" >log || { cat log; fail "cmake --install failed"; }
mv first prefix
PATH="$here/prefix/bin:$PATH"
PKG_CONFIG_PATH=$(dirname "$(find "$here/prefix" -name attn.pc)")
export PKG_CONFIG_PATH
[ "$(pkg-config --variable=program attnlab | xargs realpath)" = "$here/prefix/bin/attnlab" ] || fail "attnlab.pc"
attnlab --version | grep -qx "attnlab $(pkg-config --modversion attn)" || fail "not the version of attn.pc"

# The Python module finds the library and the program of its prefix, without NumPy, too.
if [ -x /usr/bin/python3 ]; then
  PYTHONPATH=$here/prefix/lib/python3/dist-packages /usr/bin/python3 -B -W error - <<'PY' || fail "the Python module"
import sys
sys.modules["numpy"] = None  # who imports it fails
import attnlab
from attnlab import library, program
here = str(library.prefix())
assert library.library_path().startswith(here) and program.program_path() == here + "/bin/attnlab", here
assert "tiled" in attnlab.variants() and attnlab.describe("tiled")["name"] == "tiled"
PY
fi

# The manual has every command, and completion knows them.
commands=$(attnlab --help | sed -n '/^$/,/^$/s/^  \([a-z]*\) .*/\1/p')
for command in ${commands:?none in attnlab --help}; do
  grep -qx ".SS attnlab $command" prefix/share/man/man1/attnlab.1 || fail "the manual lacks $command"
done
grep -q '^  kv_heads ' prefix/share/man/man1/attnlab.1 || fail "the manual lacks the keys of a configuration"
completions() {
  bash -c '. prefix/share/bash-completion/completions/attnlab
    COMP_WORDS=("$@") COMP_LINE="$*" COMP_POINT=$(printf %s "$*" | wc -c)
    _attnlab; echo "${COMPREPLY[*]}"' bash "$@"
}
[ "$(completions attnlab des)" = describe ] || fail "completion of a command"
[ "$(completions attnlab describe longf)" = longformer ] || fail "completion of a variant"
[ "$(completions attnlab run --dry)" = --dry-run ] || fail "completion of an option"
# Bash takes what stands before a colon or = for words of their own.
[ "$(completions attnlab apply longformer:wi)" = window= ] || fail "completion of a parameter"
[ "$(completions attnlab apply performer:features=64,orth)" = 64,orthogonal= ] || fail "completion of a second parameter"
[ "$(completions attnlab apply performer:kernel=t)" = trig ] || fail "completion of a choice"
[ "$(completions attnlab help conf)" = config ] || fail "completion of help"

# try ATTENTION STRIDED: the program says how far a window is from exact attention, the plug-in gets its verdicts.
try() {
  "$1" | grep -q '^relative error of the window: 0\.[0-9]*[1-9]' || fail "$1"
  attnlab describe strided --plugin "$2" | grep -q stride || fail "$2"
}
# shellcheck disable=SC2046 # flags
cc -std=c17 "$examples/attention.c" $(pkg-config --cflags --libs attn) -lm -Wl,-rpath,"$(pkg-config --variable=libdir attn)" -o attention
# shellcheck disable=SC2046
cc -std=c17 -shared -fPIC -DATTN_PLUGIN "$examples/strided.c" $(pkg-config --cflags attn) -o strided.so
try ./attention ./strided.so
# shellcheck disable=SC2046
cc -std=c17 "$examples/own_kernel.c" $(pkg-config --cflags --libs attn_check) -lm -Wl,-rpath,"$(pkg-config --variable=libdir attn)" -o own_kernel
# judged JUDGE: exact attention passes, and one wrong element of it is found.
judged() {
  "$1" >judged || fail "$1"
  [ "$(grep -c ': relative error' judged)" -eq 2 ] && head -n 1 judged | grep -q '^pass: ' &&
    sed -n '/^violated: /,$p' judged | grep -q '^  FP-2 *violated' || { cat judged; fail "verdicts of $1"; }
}
judged ./own_kernel

# With the options of the preset dev, whose objects ccache may have.
configure_and_build() {
  { cmake -G Ninja -DCMAKE_BUILD_TYPE=Release -DATTN_WERROR=ON "$@" && cmake --build "$2"; } >log 2>&1 || { cat log; fail "building $2 failed"; }
}
configure_and_build -B found -S "$examples" -DCMAKE_PREFIX_PATH="$here/prefix"
try found/attention found/strided.so
judged found/own_kernel
mkdir whole
cat >whole/CMakeLists.txt <<TXT
cmake_minimum_required(VERSION 3.22)
project(whole LANGUAGES C)
add_subdirectory($source attnlab)
add_subdirectory($examples examples)
TXT
configure_and_build -B within -S whole
try within/examples/attention within/examples/strided.so

# The experiment.
code=0
attnlab run "$examples/strided.yaml" --plugin ./strided.so -o strided.h5 --quiet || code=$?
[ "$code" -eq 0 ] || fail "strided.yaml: exit $code"
attnlab check strided.h5 | grep -q 'violated' && attnlab export --csv strided.h5 >strided.csv
[ "$(grep -c ',strided,.*,ok,' strided.csv)" -eq 12 ] || fail "strided.yaml: not twelve rows of the plug-in"
