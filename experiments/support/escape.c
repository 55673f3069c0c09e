/* escape.c - UTF-8 decoded (RFC 3629), so that characters of several bytes are judged as one. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/support/escape.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of the character at `text`, and its number; 0: not UTF-8. */
static size_t decode(const unsigned char *text, uint32_t *code) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const size_t length = *text < 0x80             ? 1
                        : (*text & 0xE0) == 0xC0 ? 2
                        : (*text & 0xF0) == 0xE0 ? 3
                        : (*text & 0xF8) == 0xF0 ? 4
                                                 : 0;
  if (length == 0) return 0;
  uint32_t value = length == 1 ? *text : *text & (0x7Fu >> length);
  for (size_t i = 1; i < length; i++) {
    if ((text[i] & 0xC0) != 0x80) return 0;
    value = value << 6 | (text[i] & 0x3F);
  }
  if (value < least[length] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return 0;
  *code = value;
  return length;
}

static bool is_harmless(uint32_t c) {
  const bool control = c < 0x20 || (c >= 0x7F && c < 0xA0);
  const bool reorders = c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
                        (c >= 0x2066 && c <= 0x2069);
  return !control && !reorders && c != 0x2028 && c != 0x2029 && c != 0xFEFF;
}

void escape_put(FILE *file, const char *text) {
  const unsigned char *at = (const unsigned char *)text;
  while (*at) {
    uint32_t code = 0;
    const size_t length = decode(at, &code);
    if (length == 0 || code < 0x80) {
      fprintf(file, length && is_harmless(code) ? "%c" : "\\x%02x", *at);
      at++;
    } else {
      if (is_harmless(code))
        fwrite(at, 1, length, file);
      else
        fprintf(file, "\\u%04x", (unsigned)code);
      at += length;
    }
  }
}

char *escape_text(const char *text) {
  char *made = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&made, &size);
  if (!stream) return NULL;
  escape_put(stream, text);
  const bool lost = ferror(stream);
  if (fclose(stream) == 0 && !lost) return made;
  free(made);
  return NULL;
}

bool escape_is_utf8(const char *text) {
  const unsigned char *at = (const unsigned char *)text;
  uint32_t code;
  size_t length = 0;
  while (*at && (length = decode(at, &code))) at += length;
  return !*at;
}
