#!/bin/sh
# includes_test.sh - what includes.sh must name: faults that are planted in a small tree, one at a time.
set -eu
check=$(cd "$(dirname "$0")" && pwd)/includes.sh
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cd "$root"
mkdir -p core data experiments/low experiments/high variants tests
cat > CONTRIBUTING.md <<'END'
| layer | what is in it |
|:-----|:--------------|
| `core/` | the library |
| `variants/` | variants |
| `experiments/low/` | what the high layer uses |
| `experiments/high/` | the program |

END
touch core/attn.h
echo '#include "attn.h"' > experiments/low/a.h
echo '# include "experiments/low/a.h"' > experiments/high/b.h
sh "$check" . || { echo "a tree without a fault is refused"; exit 1; }

# planted FILE INCLUDE TEXT: with this include in the file, the script fails and says TEXT.
planted() {
  printf '/* a comment */\n#include "%s"\n' "$2" > "$1"
  if said=$(sh "$check" .); then echo "$1 may include $2"; exit 1; fi
  case $said in
  *"$3"*) rm "$1" ;;
  *) echo "of $1, which includes $2: $said"; exit 1 ;;
  esac
}
planted experiments/low/x.c experiments/high/b.h \
  "experiments/low/x.c:2: includes experiments/high/b.h: experiments/high/ is further down than experiments/low/"
planted experiments/low/x.c a.h "experiments/low/x.c:2: includes a.h, which is no path"
planted experiments/low/x.c ../high/b.h "includes ../high/b.h, which is no path"
planted experiments/x.c attn.h "experiments/x.c: in no layer"
planted variants/x.c variants/y.c "variants/x.c:2: includes variants/y.c: a variant includes another"
planted experiments/high/a.h attn.h "several sources are called a.h"
echo '#include "experiments/low/c.h"' >> experiments/low/a.h
planted experiments/low/c.h experiments/low/a.h "lead back"
for i in $(seq 41); do touch "experiments/high/$i.c"; done
planted experiments/high/x.c attn.h "experiments/high: 43 files, at most 40"
