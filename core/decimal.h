/* decimal.h - how the library reads and writes numbers. */
#ifndef ATTN_CORE_DECIMAL_H
#define ATTN_CORE_DECIMAL_H

#include <locale.h>
#include <stddef.h>

typedef struct attn_locale {
  locale_t own, outer;
} attn_locale;

/* The calling thread's locale becomes "C", until leave. Without memory it stays. */
attn_locale attn_locale_enter(void);
void attn_locale_leave(attn_locale);

/* The shortest text that reads back as the same number, in that locale. */
void attn_shortest_print(double value, char *text, size_t size);

#endif
