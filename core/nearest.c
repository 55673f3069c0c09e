/* nearest.c - what a misspelt name may have been meant to be: the known name with the least distance of
 * Damerau, by insertions, deletions, replacements and swaps of neighbours (doi:10.1145/363958.363994; a
 * letter is part of one of them at most). */
#include "core/internal.h"

#include <string.h>

enum { LENGTH_MAX = 32 };

static int least(int a, int b) { return a < b ? a : b; }

/* Both at most LENGTH_MAX long. */
static int distance(const char *a, int m, const char *b, int n) {
  int d[LENGTH_MAX + 1][LENGTH_MAX + 1];
  for (int i = 0; i <= m; i++) d[i][0] = i;
  for (int j = 0; j <= n; j++) d[0][j] = j;
  for (int i = 1; i <= m; i++)
    for (int j = 1; j <= n; j++) {
      d[i][j] = least(least(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[m][n];
}

void attn_nearest_try(attn_nearest *x, const char *known) {
  if (!x || !x->name || !known) return;
  const size_t m = x->length ? x->length : strlen(x->name), n = strlen(known);
  if (m > LENGTH_MAX || n > LENGTH_MAX) return;
  const int apart = distance(x->name, (int)m, known, (int)n);
  /* Two names that share less than two thirds of their letters are two names. */
  if (3 * apart > (int)(m > n ? m : n) || (x->best && apart >= x->distance)) return;
  x->best = known;
  x->distance = apart;
}

const char *attn_nearest_hint(attn_nearest *x) {
  static const char before[] = " (did you mean '", after[] = "'?)";
  if (!x || !x->best) return "";
  char *at = x->hint;
  memcpy(at, before, sizeof before - 1);
  at += sizeof before - 1;
  memcpy(at, x->best, strlen(x->best));
  memcpy(at + strlen(x->best), after, sizeof after);
  return x->hint;
}
