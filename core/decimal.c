/* decimal.c - numbers with a decimal point, whatever locale the program or a plug-in has set. */
#define _POSIX_C_SOURCE 200809L
#include "core/decimal.h"

attn_locale attn_locale_enter(void) {
  const locale_t own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return (attn_locale){own, uselocale(own)};
}

void attn_locale_leave(attn_locale l) {
  uselocale(l.outer);
  if (l.own) freelocale(l.own);
}
