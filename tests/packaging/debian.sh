#!/bin/sh
# debian.sh BUILD - what the Debian packages of a build hold and ask for. Exit code 77: cpack lacks a tool.
set -eu
for tool in dpkg-shlibdeps file; do command -v "$tool" >/dev/null || exit 77; done
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cpack -G DEB --config "$1/CPackConfig.cmake" -B "$here" >"$here/log" 2>&1 || { cat "$here/log"; exit 1; }

# expect PACKAGE FIELD PATTERN; holds PACKAGE PATH
expect() {
  dpkg-deb -f "$here/$1"_*.deb "$2" | grep -q "$3" || { echo "debian.sh: $1: $2 is not $3" >&2; exit 1; }
}
holds() {
  dpkg-deb -c "$here/$1"_*.deb >"$here/files"
  grep -q " ./usr/$2\( -> .*\)\?$" "$here/files" || { echo "debian.sh: $1 lacks $2" >&2; exit 1; }
}
expect attnlab Maintainer '^The attnlab developers$'
expect attnlab Depends libfftw3
expect libattn-dev Depends '^attnlab (= '
holds attnlab bin/attnlab
holds attnlab 'lib.*/libattn.so.[0-9.]*'
holds attnlab share/man/man1/attnlab.1
holds attnlab lib/python3/dist-packages/attnlab/__init__.py
holds attnlab share/bash-completion/completions/attnlab
holds libattn-dev include/attn_variant.h
holds libattn-dev 'lib.*/libattn.so'
holds attnlab 'lib.*/libattn_check.so.[0-9.]*'
holds libattn-dev include/attn_check.h
holds libattn-dev 'lib.*/pkgconfig/attn.pc'
holds libattn-dev 'lib.*/cmake/attn/attnConfig.cmake'
