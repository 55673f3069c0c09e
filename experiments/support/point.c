/* point.c - a locale of the thread's own. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/support/point.h"

#include <locale.h>

void point_fix(void) {
  static locale_t own;
  if (!own) own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (own) uselocale(own);
}
