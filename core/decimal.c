/* decimal.c - numbers with a decimal point, whatever locale the program or a plug-in has set. */
#define _POSIX_C_SOURCE 200809L
#include "core/decimal.h"

#include <stdio.h>
#include <stdlib.h>

attn_locale attn_locale_enter(void) {
  const locale_t own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return (attn_locale){own, uselocale(own)};
}

void attn_locale_leave(attn_locale l) {
  uselocale(l.outer);
  if (l.own) freelocale(l.own);
}

void attn_shortest_print(double value, char *text, size_t size) {
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, size, "%.*g", digits, value);
    if (!(strtod(text, NULL) < value || strtod(text, NULL) > value)) return;
  }
}
