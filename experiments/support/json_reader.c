/* json_reader.c - a cursor on JSON text. */
#include "experiments/support/json_reader.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 32, NUMBER_MAX = 400 };

json_reader json_reader_of(const char *text, size_t length) {
  return (json_reader){.at = text, .end = text + length};
}

void json_reader_free(json_reader *r) {
  free(r->text);
  *r = (json_reader){0};
}

static bool fail(json_reader *r, const char *expected) {
  if (!r->wrong) r->wrong = expected;
  return false;
}

static void skip_blanks(json_reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

static bool skip_char(json_reader *r, char c, const char *expected) {
  skip_blanks(r);
  if (r->wrong || r->at == r->end || *r->at != c) return fail(r, expected);
  r->at++;
  return true;
}

json_read_kind json_reader_peek(json_reader *r) {
  skip_blanks(r);
  if (r->wrong || r->at == r->end) return JSON_READ_NOTHING;
  switch (*r->at) {
  case '{':
    return JSON_READ_OBJECT;
  case '[':
    return JSON_READ_ARRAY;
  case '"':
    return JSON_READ_TEXT;
  case 't':
    return JSON_READ_TRUE;
  case 'f':
    return JSON_READ_FALSE;
  case 'n':
    return JSON_READ_NULL;
  default:
    return *r->at == '-' || (*r->at >= '0' && *r->at <= '9') ? JSON_READ_NUMBER : JSON_READ_NOTHING;
  }
}

bool json_reader_begin(json_reader *r, char open) {
  return skip_char(r, open, open == '{' ? "an object" : "an array");
}

bool json_reader_more(json_reader *r, char close, size_t *count) {
  skip_blanks(r);
  if (!r->wrong && r->at < r->end && *r->at == close) {
    r->at++;
    return false;
  }
  if (*count && !skip_char(r, ',', close == '}' ? "',' or '}'" : "',' or ']'")) return false;
  if (r->wrong) return false;
  ++*count;
  return true;
}

/* -- texts -- */

static bool grow(json_reader *r, size_t more) {
  if (r->room - r->length > more) return true;
  const size_t room = 2 * (r->length + more) + 64;
  char *text = realloc(r->text, room);
  if (!text) {
    r->starved = true;
    return fail(r, "memory for a text");
  }
  r->text = text;
  r->room = room;
  return true;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Four hexadecimal digits; -1: there are not as many. */
static long code_unit(json_reader *r) {
  long unit = 0;
  if (r->end - r->at < 4) return -1;
  for (int i = 0; i < 4; i++) {
    const int digit = hex_digit(*r->at++);
    if (digit < 0) return -1;
    unit = unit << 4 | digit;
  }
  return unit;
}

static bool put_code_point(json_reader *r, long c) {
  const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
  if (!grow(r, 4)) return false;
  r->text[r->length++] = (char)(lead[more] | c >> 6 * more);
  for (int i = more - 1; i >= 0; i--) r->text[r->length++] = (char)(0x80 | (c >> 6 * i & 0x3f));
  return true;
}

static bool take_escape(json_reader *r) {
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  const char c = r->at < r->end ? *r->at++ : '\0';
  const char *name = c ? strchr(names, c) : NULL;
  if (name) return put_code_point(r, values[name - names]);
  long unit = c == 'u' ? code_unit(r) : -1;
  if (unit >= 0xd800 && unit < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
    r->at += 2;
    const long low = code_unit(r);
    unit = low >= 0xdc00 && low < 0xe000 ? 0x10000 + (unit - 0xd800) * 0x400 + low - 0xdc00 : -1;
  } else if (unit >= 0xd800 && unit < 0xe000) {
    unit = -1;
  }
  return unit > 0 ? put_code_point(r, unit) : fail(r, "an escape of JSON, and no NUL");
}

/* Bytes of the UTF-8 character at p; 0: none is there. */
static size_t utf8_length(const unsigned char *p, size_t left) {
  const size_t length = p[0] < 0x80                   ? 1
                        : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
                        : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
                        : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                                      : 0;
  if (length == 0 || length > left) return 0;
  for (size_t i = 1; i < length; i++)
    if ((p[i] & 0xc0) != 0x80) return 0;
  if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f)) return 0; /* too long; a surrogate */
  return (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f) ? 0 : length;
}

bool json_reader_text(json_reader *r) {
  if (!skip_char(r, '"', "a text")) return false;
  r->length = 0;
  while (r->at < r->end) {
    const char *from = r->at;
    while (r->at < r->end && *r->at != '"' && *r->at != '\\' && (unsigned char)*r->at >= 0x20) {
      const size_t length = (unsigned char)*r->at < 0x80
                                ? 1
                                : utf8_length((const unsigned char *)r->at, (size_t)(r->end - r->at));
      if (length == 0) return fail(r, "UTF-8");
      r->at += length;
    }
    const size_t plain = (size_t)(r->at - from);
    if (!grow(r, plain)) return false;
    memcpy(r->text + r->length, from, plain);
    r->length += plain;
    if (r->at == r->end || (unsigned char)*r->at < 0x20) break;
    if (*r->at++ == '"') {
      r->text[r->length] = '\0';
      return true;
    }
    if (!take_escape(r)) return false;
  }
  return fail(r, "the end of a text");
}

bool json_reader_name(json_reader *r) { return json_reader_text(r) && skip_char(r, ':', "':'"); }

/* -- numbers and words -- */

static const char *digits(const char *p, const char *end) {
  while (p < end && *p >= '0' && *p <= '9') p++;
  return p;
}

bool json_reader_number(json_reader *r, double *x, int64_t *integer) {
  char copy[NUMBER_MAX];
  skip_blanks(r);
  const char *begin = r->at, *p = begin < r->end && *begin == '-' ? begin + 1 : begin, *whole = p;
  if (r->wrong || (p = digits(p, r->end)) == whole || (*whole == '0' && p - whole > 1))
    return fail(r, "a number");
  const char *mark = p;
  if (p < r->end && *p == '.') {
    const char *part = ++p;
    if ((p = digits(p, r->end)) == part) return fail(r, "digits behind '.'");
  }
  if (p < r->end && (*p == 'e' || *p == 'E')) {
    p++;
    if (p < r->end && (*p == '+' || *p == '-')) p++;
    const char *part = p;
    if ((p = digits(p, r->end)) == part) return fail(r, "digits of an exponent");
  }
  if (p - begin >= NUMBER_MAX) return fail(r, "a number of fewer digits");
  if (integer && p != mark) return fail(r, "an integer");
  memcpy(copy, begin, (size_t)(p - begin));
  copy[p - begin] = '\0';
  errno = 0;
  if (integer)
    *integer = strtoll(copy, NULL, 10);
  else if (x)
    *x = strtod(copy, NULL);
  if (integer ? errno == ERANGE : x && isinf(*x)) return fail(r, "a number in range");
  r->at = p;
  return true;
}

bool json_reader_word(json_reader *r) {
  static const char *const words[] = {"true", "false", "null"};
  skip_blanks(r);
  for (size_t i = 0; i < 3 && !r->wrong; i++) {
    const size_t length = strlen(words[i]);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, words[i], length) != 0) continue;
    r->at += length;
    return true;
  }
  return fail(r, "a value");
}

static bool skip_value(json_reader *r, int depth) {
  const json_read_kind kind = json_reader_peek(r);
  size_t count = 0;
  if (kind == JSON_READ_TEXT) return json_reader_text(r);
  if (kind == JSON_READ_NUMBER) return json_reader_number(r, NULL, NULL);
  if (kind != JSON_READ_OBJECT && kind != JSON_READ_ARRAY) return json_reader_word(r);
  const bool named = kind == JSON_READ_OBJECT;
  if (depth == DEPTH_MAX) return fail(r, "fewer levels");
  json_reader_begin(r, named ? '{' : '[');
  while (json_reader_more(r, named ? '}' : ']', &count))
    if ((named && !json_reader_name(r)) || !skip_value(r, depth + 1)) break;
  return !r->wrong;
}

bool json_reader_skip(json_reader *r) { return skip_value(r, 0); }

bool json_reader_end(json_reader *r) {
  skip_blanks(r);
  return r->wrong || r->at < r->end ? fail(r, "the end") : true;
}
