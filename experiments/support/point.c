/* point.c - a locale of the thread's own. */
#include "experiments/support/point.h"

#include <locale.h>

void point_fix(void) {
  static locale_t own;
  if (!own) own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (own) uselocale(own);
}
