#!/bin/sh
# files.sh - what the files of cases/ write before their commands (cases.py).

# A leak of attnlab is an error, with exit code 23 (cases.py).
attnlab() { LD_PRELOAD=$LEAKS command attnlab "$@"; }

# npy NAME TYPE SHAPE BYTES: an array of zeros, npy q.npy '<f4' '(8, 4)' 128; of standard input if BYTES is -.
npy() {
  {
    printf '\223NUMPY\1\0\166\0%-117s\n' "{'descr': '$2', 'fortran_order': False, 'shape': $3, }"
    if [ "$4" = - ]; then cat; else head -c "$4" /dev/zero; fi
  } >"$1"
}

# safetensors NAME BYTES: the header on standard input, and as many zeros.
safetensors() {
  header=$(cat)
  {
    printf "\\$(printf %o $((${#header} % 256)))\\$(printf %o $((${#header} / 256)))\\0\\0\\0\\0\\0\\0%s" "$header"
    head -c "$2" /dev/zero
  } >"$1"
}

# judged SPEC PATTERN [OPTION...]: the lines of attnlab test that match, with its exit code; of $problems (drawn, or none: of
# both kinds), with the options $plugins.
problems=fixed plugins=
judged() {
  spec=$1 pattern=$2
  shift 2
  attnlab test "$spec" ${problems:+--problems $problems} $plugins "$@" >out
  code=$?
  grep -E -e "$pattern" out
  return $code
}
