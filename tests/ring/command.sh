#!/bin/sh
# command.sh MPIRUN ATTNLAB SOURCE - attnlab ring on two and three processes: its table, and what it refuses.
set -eu

attnlab=$2
source=$3
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here"
ring() {
  processes=$1
  shift
  "$mpirun" --oversubscribe --allow-run-as-root -n "$processes" "$attnlab" ring "$@" >out 2>err
}
mpirun=$1

fail() {
  echo "$1"
  cat out err
  exit 1
}
# The lines of the table: one process without a ring, then rings of the numbers named; each passes.
expect_rings() {
  [ "$(sed -n 's/^\([a-z0-9]*\) .* pass$/\1/p' out | tr '\n' ' ')" = "alone $* " ] || fail "expected passes of: alone $*"
}

ring 2 --n 301 --heads 4 --kv-heads 2 --d 16 --causal || fail "exit $?"
expect_rings 2
ring 3 --n 130 --heads 2 --d 8 --dtype f64 "tiled:block_q=16,block_k=32" || fail "exit $?"
expect_rings 2 3
"$attnlab" capture "$source/data/bytelm" --text "$source/LICENSE" --layer 3 --n 200 -o qkv.h5
ring 2 --in qkv.h5 --causal || fail "exit $?"
expect_rings 2
grep -q 'n = 200, .* causal$' out || fail "expected the file's shape"

# What one process finds wrong, all hear of, and one says.
code=0
ring 3 --n 5 || code=$?
[ "$code" = 2 ] && [ "$(grep -c '^attnlab ring: .*at least 2 rows' err)" = 1 ] || fail "n < 2 P: exit $code"
code=0
ring 2 --in missing.h5 || code=$?
[ "$code" != 0 ] && [ "$(grep -c '^attnlab ring: .*missing.h5' err)" = 1 ] || fail "no file: exit $code"
code=0
"$mpirun" --oversubscribe --allow-run-as-root -n 1 "$attnlab" ring --n 64 : -n 1 "$attnlab" ring --n 96 >out 2>err || code=$?
[ "$code" = 2 ] && [ "$(grep -c '^attnlab ring: .*--n differs between ranks: 96, on rank 0 64' err)" = 1 ] ||
  fail "processes with different arguments: exit $code"
code=0
ring 2 --n 64 full || code=$?
[ "$code" = 2 ] && [ "$(grep -c '^attnlab ring: .*log-sum-exp' err)" = 1 ] || fail "not exact: exit $code"
