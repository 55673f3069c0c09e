#!/bin/sh
# exports.sh NM LIBRARY - the shared library exports what its public headers declare with ATTN_API, and nothing
# else. attn_plugin is declared there for plug-ins to define.
set -eu
core=$(dirname "$0")/../../core
list=$(mktemp -d)
trap 'rm -r "$list"' EXIT
# A declaration may break before its name.
grep -hv '^#' "$core/attn.h" "$core/attn_variant.h" "$core/attn_arithmetic.h" "$core/attn_engines.h" "$core/attn_features.h" "$core/attn_gradients.h" "$core/attn_lowrank.h" "$core/attn_selector.h" \
  "$core/attn_eviction.h" "$core/attn_tools.h" "$core/cache/attn_kv_cache.h" "$core/expression/attn_expression.h" | tr '\n' ' ' | grep -o 'ATTN_API [^;([]*[([]' |
  sed 's/[([]$//; s/.*[ *]//' | grep -v '^attn_plugin$' | sort -u >"$list/declared"
# Clang's OpenMP exports its locks, whose names begin with a dot; gold, where the data end.
"$1" -D --defined-only "$2" | awk '$3 !~ /^([.].*|__bss_start|_edata|_end)$/ { print $3 }' | sort -u >"$list/exported"
[ "$(wc -l <"$list/declared")" -gt 50 ] || { echo "exports.sh finds no declarations"; exit 1; }
diff "$list/declared" "$list/exported" || { echo "<: declared and not exported; >: exported and not declared"; exit 1; }
