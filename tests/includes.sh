#!/bin/sh
# includes.sh [ROOT] - every #include "..." is a path from the root to a file of the same layer, or of one further up in
# the table of layers of CONTRIBUTING.md. No variant includes another, no include leads back to its own file, no folder
# except variants/ holds more than 40 files, and no two sources have one name; a test may have that of what it tests.
# Names each that breaks a rule.
set -eu
cd "${1:-$(dirname "$0")/..}"
most=40
fails=0
edges=$(mktemp)
trap 'rm -f "$edges"' EXIT

layers=$(sed -n '/^| layer /,/^$/s/^| `\([^`]*\)`.*/\1/p' CONTRIBUTING.md)
[ -n "$layers" ] || { echo "CONTRIBUTING.md: no table of layers"; exit 1; }

find core data experiments variants tests -type f \( -name '*.c' -o -name '*.h' -o -name '*.inc' \) | sort |
  xargs awk -v layers="$layers" -v edges="$edges" '
    BEGIN { count = split(layers, layer, "\n") }
    # The row of the table that is the longest beginning of the path; 0: none.
    function layer_of(path,   i, best, at) {
      for (i = 1; i <= count; i++)
        if (index(path, layer[i]) == 1 && length(layer[i]) > best) { best = length(layer[i]); at = i }
      return at + 0
    }
    function wrong(text) { print FILENAME ":" FNR ": includes " target text; bad = 1 }
    FNR == 1 && !layer_of(FILENAME) { print FILENAME ": in no layer of CONTRIBUTING.md"; bad = 1 }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
      split($0, part, "\"")
      target = part[2]
      if (target ~ /^(git_info\.h|mutants\.inc)$/) next # made by the build
      if (target ~ /^attn(_variant|_arithmetic|_engines|_eviction|_features|_gradients|_lowrank|_selector|_tools)?\.h$/) target = "core/" target
      if (target == "attn_kv_cache.h") target = "core/cache/" target
      if (target == "attn_expression.h") target = "core/expression/" target
      if (target == "attn_ring.h") target = "core/ring/" target
      from = layer_of(FILENAME); to = layer_of(target)
      print FILENAME, target >> edges
      if (!to) wrong(", which is no path from the root into a layer")
      else if (to > from && from) wrong(": " layer[to] " is further down than " layer[from])
      else if (FILENAME ~ /^variants\// && target ~ /^variants\/.*\.[ch]$/) wrong(": a variant includes another")
    }
    END { exit bad }' || fails=1

loops=$(tsort "$edges" 2>&1 >/dev/null) || { echo "includes that lead back: $loops"; fails=1; }

for name in $(find core data experiments variants -name '*.[ch]' -o -name '*.inc' | sed 's|.*/||' | sort | uniq -d); do
  echo "several sources are called $name"
  fails=1
done

# shellcheck disable=SC2044 # no name of a folder has a space
for folder in $(find core data experiments tests -type d); do
  files=$(find "$folder" -maxdepth 1 -type f | wc -l)
  [ "$files" -le "$most" ] || { echo "$folder: $files files, at most $most"; fails=1; }
done
exit $fails
