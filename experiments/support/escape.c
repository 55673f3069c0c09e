/* escape.c - UTF-8 decoded (RFC 3629), so that characters of several bytes are judged as one. */
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

enum { ESCAPED_MAX = 6 };

/* Takes the next character of a text that has not ended, and gives it escaped. */
static const unsigned char *escape_one(const unsigned char *at, char out[ESCAPED_MAX + 1]) {
  uint32_t code = 0;
  const size_t length = decode(at, &code);
  if (length && is_harmless(code)) {
    memcpy(out, at, length);
    out[length] = '\0';
  } else if (length < 2) {
    snprintf(out, ESCAPED_MAX + 1, "\\x%02x", *at);
  } else {
    snprintf(out, ESCAPED_MAX + 1, "\\u%04x", (unsigned)code & 0xFFFF);
  }
  return at + (length ? length : 1);
}

void escape_put(FILE *file, const char *text) {
  char out[ESCAPED_MAX + 1];
  for (const unsigned char *at = (const unsigned char *)text; *at;) {
    at = escape_one(at, out);
    fputs(out, file);
  }
}

void escape_put_word(FILE *out, const char *text) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/:=,+";
  if (*text && !text[strspn(text, letters)]) {
    fputs(text, out);
    return;
  }
  putc('\'', out);
  for (; *text; text++) {
    if (*text == '\'')
      fputs("'\\''", out);
    else
      putc(*text, out);
  }
  putc('\'', out);
}

void escape_put_yaml(FILE *out, const char *text) {
  putc('"', out);
  for (; *text; text++)
    if ((unsigned char)*text < ' ' || *text == 127 || *text == '\'')
      fprintf(out, "\\x%02x", *text);
    else
      fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
  putc('"', out);
}

char *escape_text(const char *text) {
  char out[ESCAPED_MAX + 1];
  const size_t length = strlen(text);
  char *made = length < SIZE_MAX / ESCAPED_MAX - 1 ? malloc(ESCAPED_MAX * length + 1) : NULL, *end = made;
  if (!made) return NULL;
  for (const unsigned char *at = (const unsigned char *)text; *at; end += strlen(out)) {
    at = escape_one(at, out);
    strcpy(end, out);
  }
  *end = '\0';
  return made;
}

bool escape_is_utf8(const char *text) {
  const unsigned char *at = (const unsigned char *)text;
  uint32_t code;
  size_t length = 0;
  while (*at && (length = decode(at, &code))) at += length;
  return !*at;
}
