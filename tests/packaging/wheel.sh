#!/bin/sh
# wheel.sh BUILD SOURCE - makes the wheel of a build, and installs the file by pip in a bare virtual environment: the
# module and the program run there with an empty environment, and every library of theirs is the wheel's or of glibc.
# Exit code 77: what makes wheels or virtual environments is not here.
set -eu
build=$(realpath "$1")
source=$(realpath "$2")
{ /usr/bin/python3 -c 'import ensurepip, wheel' && command -v patchelf; } >/dev/null 2>&1 || {
  echo "wheel.sh: NOT TESTED: no patchelf, or /usr/bin/python3 has no ensurepip or wheel (cmake/bootstrap.sh tools)"
  [ "${ATTN_TESTS_PYTHON-}" != required ] || exit 1
  exit 77
}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here"

fail() {
  echo "wheel.sh: $1" >&2
  exit 1
}

wheel=$(/usr/bin/python3 -B "$source/cmake/wheel.py" "$build" "$here") || fail "no wheel"
/usr/bin/python3 -m venv bare
env -i bare/bin/pip --disable-pip-version-check -q --no-cache-dir install --no-index --no-deps "$wheel" || fail "pip cannot install $wheel"

mkdir elsewhere
cd elsewhere
# of_the_wheel WHO LIBRARY: of the libraries that are read, LIBRARY is the wheel's, and all are or those of glibc.
of_the_wheel() {
  grep -o '/[^ ]*\.so[^ ]*' | sort -u >used
  grep -q "^$here/.*/$2\.so" used || fail "$1 has no $2 of the wheel"
  foreign=$(grep -Ev "^$here/|/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[-a-z0-9_]*)\.so\." used || true)
  [ -z "$foreign" ] || fail "$1 uses $foreign"
}
env -i ../bare/bin/python -W error - >loaded <<'PY' || fail "the Python module"
import array
import pathlib
import sys

import attnlab
from attnlab import library, program

maps = pathlib.Path("/proc/self/maps")
before = maps.read_text().split()
assert "numpy" not in sys.modules
assert library.library_path().startswith(sys.prefix) and program.program_path().startswith(sys.prefix), sys.prefix


def rows(*numbers):
    """[2, 2], as buffers say it."""
    return memoryview(array.array("f", numbers)).cast("B").cast("f", (2, 2))


o = rows(0, 0, 0, 0)
attnlab.attention(rows(0, 0, 0, 0), rows(1, 2, 3, 4), rows(1, 2, 3, 6), "tiled", causal=True, out=o)
assert o.tolist() == [[1, 2], [2, 4]], o.tolist()
assert attnlab.describe("tiled")["name"] == "tiled"
print(*set(maps.read_text().split()) - set(before), sep="\n")
PY
of_the_wheel "the Python module" libgsl <loaded
program=$(find "$here/bare" -path '*/bundled/bin/attnlab')
ldd "$program" | of_the_wheel "the program" libhdf5_serial

attnlab() { env -i ../bare/bin/attnlab "$@"; }
[ "$(attnlab --version)" = "attnlab $(echo "$wheel" | sed 's/.*attnlab-\([^-]*\)-.*/\1/')" ] || fail "attnlab --version"
attnlab list variants | grep -q '^ *tiled ' || fail "attnlab list variants"
attnlab test tiled --problems fixed --only FP-2 | grep -q 'FP-2.*pass' || fail "attnlab test"
code=0
attnlab describe nothing 2>said || code=$?
[ "$code" -eq 2 ] && grep -q '^attnlab' said || fail "the exit code of the program: $code"
