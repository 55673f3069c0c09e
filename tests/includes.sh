#!/bin/sh
# includes.sh [ROOT] - every #include "..." goes to the same room or to one above it in the table of rooms of
# CONTRIBUTING.md; names each that does not. No room but variants/ holds more than 30 files.
set -eu
cd "${1:-$(dirname "$0")/..}"
most=30
fails=0

# The rows of the table as  PLACE, from the bottom of the house to its top.
rooms=$(sed -n '/^| room /,/^$/s/^| `\([^`]*\)`.*/\1/p' CONTRIBUTING.md)
[ -n "$rooms" ] || { echo "CONTRIBUTING.md: no table of rooms"; exit 1; }

find core data experiments variants tests -type f \( -name '*.c' -o -name '*.h' -o -name '*.inc' \) | sort |
  xargs awk -v rooms="$rooms" '
    BEGIN { count = split(rooms, room, "\n") }
    # The row whose place is the longest beginning of the path.
    function floor_of(path,   i, best, at) {
      for (i = 1; i <= count; i++)
        if (index(path, room[i]) == 1 && length(room[i]) > best) { best = length(room[i]); at = i }
      return at
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
      split($0, part, "\"")
      target = part[2]
      if (target ~ /^attn(_variant)?\.h$/) target = "core/" target
      if (target == "attn_ring.h") target = "core/ring/" target
      if (target !~ /\//) next # made by the build
      from = floor_of(FILENAME); to = floor_of(target)
      if (!from) { print FILENAME ": in no room of CONTRIBUTING.md"; bad = 1 }
      else if (!to) { print FILENAME ":" FNR ": includes " target ", which is in no room"; bad = 1 }
      else if (to > from) {
        print FILENAME ":" FNR ": includes " target ": " room[from] " is below " room[to]; bad = 1
      }
    }
    END { exit bad }' || fails=1

# shellcheck disable=SC2044 # no folder's name has a space
for folder in $(find core data experiments tests -type d); do
  files=$(find "$folder" -maxdepth 1 -type f | wc -l)
  [ "$files" -le "$most" ] || { echo "$folder: $files files, at most $most"; fails=1; }
done
exit $fails
