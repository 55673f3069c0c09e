#!/bin/sh
# aarch64.sh - what the build for AArch64 needs (cmake/aarch64.cmake), where this machine lacks it.
# Called by tests/run.sh --neon; quiet when nothing is missing.
set -eu

case "${1-}" in
  '') ;;
  --help | -h)
    cat <<'TXT'
Usage: cmake/aarch64.sh [--help]
Installs a cross compiler and qemu-user as cmake/bootstrap.sh does, and unpacks the arm64 packages of the C library,
FFTW and GSL into build/aarch64. They come from the machine's own apt sources, with lists and a cache apart: its package
management keeps its one architecture, and unpacking needs no rights. Debian; exits 69 where that fails.
TXT
    exit 0 ;;
  *) echo "aarch64.sh: unexpected argument '$1'" >&2; exit 2 ;;
esac

cd "$(dirname "$0")/.."
./cmake/bootstrap.sh neon
root=build/aarch64
packages='libc6-dev libfftw3-dev libgsl-dev'
[ "$(cat "$root/complete" 2>/dev/null)" != "$packages" ] || exit 0

echo "attnlab: unpacking libraries for arm64 into $root" >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
quietly() {
  "$@" >"$work/log" 2>&1 </dev/null && return
  cat "$work/log" >&2
  echo "attnlab: '$*' failed; no libraries for arm64" >&2
  exit 69 # EX_UNAVAILABLE
}
arm64_apt() {
  quietly apt-get -q -o APT::Architecture=arm64 -o Dir::State="$work/state" -o Dir::State::status="$work/status" \
    -o Dir::Cache="$work/cache" "$@"
}
chmod 755 "$work" # apt's own user reads it
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" build
: >"$work/status"
arm64_apt update
# shellcheck disable=SC2086 # one word per package
arm64_apt install --download-only -y --no-install-recommends $packages
rm -rf "$root" build/neon # what was built against another root
for package in "$work"/cache/archives/*.deb; do quietly dpkg-deb -x "$package" "$root"; done
# /lib/... in a link is a path of this machine, not of that root: the linker would pass over libm.so for libm.a.
find "$root" -type l -lname '/*' | while read -r link; do ln -sfnr "$root$(readlink "$link")" "$link"; done
for library in libc libm libfftw3 libfftw3f libgsl; do
  quietly test -e "$root/usr/lib/aarch64-linux-gnu/$library.so"
done
echo "$packages" >"$root/complete" # last: a root that was left half-made is made again
