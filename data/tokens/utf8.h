/* utf8.h - characters of a text that is known to be UTF-8. Internal to data/. */
#ifndef DATA_TOKENS_UTF8_H
#define DATA_TOKENS_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Where the character at `at`, which may be NUL, ends. */
static inline size_t utf8_end(const uint8_t *text, size_t bytes, size_t at) {
  for (at++; at < bytes && (text[at] & 0xc0) == 0x80;) at++;
  return at;
}

#endif
