/* text.h - a text by a format, where it is used. */
#ifndef TESTS_SUPPORT_BASICS_TEXT_H
#define TESTS_SUPPORT_BASICS_TEXT_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct kept_text {
  struct kept_text *before;
  char text[];
} kept_text;

/* Lives as long as the program. */
__attribute__((format(printf, 1, 2))) static inline const char *text_of(const char *format, ...) {
  static kept_text *last;
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const size_t size = (size_t)vsnprintf(NULL, 0, format, arguments) + 1;
  kept_text *own = malloc(sizeof *own + size);
  if (!own) abort();
  vsnprintf(own->text, size, format, again);
  va_end(again);
  va_end(arguments);
  own->before = last;
  last = own;
  return own->text;
}

#endif
