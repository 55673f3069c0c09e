/* npy_header.c - the header of an .npy file: magic bytes, version, and a Python dictionary. */
#include <stdlib.h>
#include <string.h>

#include "data/formats/npy.h"

/* A cursor over the dictionary's text. */
typedef struct cursor {
  const char *path, *at, *end;
} cursor;

static void skip_blanks(cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) c->at++;
}

static bool skip_char(cursor *c, char wanted) {
  skip_blanks(c);
  if (c->at == c->end || *c->at != wanted) return false;
  c->at++;
  return true;
}

static bool take_word(cursor *c, const char *word) {
  size_t length = strlen(word);
  skip_blanks(c);
  if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
  c->at += length;
  return true;
}

static bool take_text(cursor *c, char *text, size_t size) {
  char quote = '\'';
  if (!skip_char(c, quote)) {
    quote = '"';
    if (!skip_char(c, quote)) return false;
  }
  size_t length = 0;
  while (c->at < c->end && *c->at != quote) {
    if (length + 1 == size || *c->at < ' ' || *c->at > '~') return false;
    text[length++] = *c->at++;
  }
  text[length] = '\0';
  return skip_char(c, quote);
}

/* Behind blanks. */
static bool take_size(cursor *c, int64_t *out) {
  int64_t value = 0;
  const char *first = c->at;
  while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
    int digit = *c->at++ - '0';
    if (value > (INT64_MAX - digit) / 10) return false;
    value = value * 10 + digit;
  }
  *out = value;
  return c->at > first;
}

static attn_status take_shape(cursor *c, npy_header *h) {
  if (!skip_char(c, '(')) return attn_fail(ATTN_EINVAL, "%s: npy header: shape is not a tuple", c->path);
  h->rank = 0;
  while (!skip_char(c, ')')) {
    int64_t length;
    if (!take_size(c, &length))
      return attn_fail(ATTN_EINVAL, "%s: npy header: shape is not a tuple of integers below 2^63", c->path);
    if (length == 0)
      return attn_fail(ATTN_EINVAL, "%s: the array is empty: axis %d has length 0", c->path, h->rank);
    if (h->rank == DATA_RANK_MAX)
      return attn_fail(ATTN_EINVAL, "%s: more than %d axes", c->path, DATA_RANK_MAX);
    h->shape[h->rank++] = length;
    if (skip_char(c, ',')) continue;
    if (skip_char(c, ')')) break;
    return attn_fail(ATTN_EINVAL, "%s: npy header: shape is not a tuple of integers", c->path);
  }
  if (h->rank == 0) return attn_fail(ATTN_EINVAL, "%s: a scalar, expected an array", c->path);
  return ATTN_OK;
}

static attn_status parse_dictionary(cursor *c, npy_header *h) {
  bool seen[3] = {false};
  if (!skip_char(c, '{')) return attn_fail(ATTN_EINVAL, "%s: npy header: no dictionary", c->path);
  while (!skip_char(c, '}')) {
    char key[NPY_DESCR_MAX];
    if (!take_text(c, key, sizeof key) || !skip_char(c, ':'))
      return attn_fail(ATTN_EINVAL, "%s: npy header: malformed dictionary", c->path);
    int which = !strcmp(key, "descr") ? 0 : !strcmp(key, "fortran_order") ? 1 : !strcmp(key, "shape") ? 2 : 3;
    if (which == 3) return attn_fail(ATTN_EINVAL, "%s: npy header: unknown key '%s'", c->path, key);
    if (seen[which]) return attn_fail(ATTN_EINVAL, "%s: npy header: key '%s' twice", c->path, key);
    seen[which] = true;
    if (which == 0 && !take_text(c, h->descr, sizeof h->descr))
      return attn_fail(ATTN_EINVAL, "%s: npy header: descr is not a simple type such as '<f4'", c->path);
    if (which == 1) {
      h->fortran = take_word(c, "True");
      if (!h->fortran && !take_word(c, "False"))
        return attn_fail(ATTN_EINVAL, "%s: npy header: fortran_order is neither True nor False", c->path);
    }
    attn_status status = which == 2 ? take_shape(c, h) : ATTN_OK;
    if (status) return status;
    if (!skip_char(c, ',') && (c->at == c->end || *c->at != '}'))
      return attn_fail(ATTN_EINVAL, "%s: npy header: malformed dictionary", c->path);
  }
  skip_blanks(c);
  if (c->at != c->end) return attn_fail(ATTN_EINVAL, "%s: npy header: text after the dictionary", c->path);
  if (!seen[0] || !seen[1] || !seen[2])
    return attn_fail(ATTN_EINVAL, "%s: npy header: lacks descr, fortran_order or shape", c->path);
  return ATTN_OK;
}

attn_status npy_header_parse(const char *path, const uint8_t *at, size_t bytes, npy_header *h) {
  if (bytes < 10 || memcmp(at, "\x93NUMPY", 6) != 0)
    return attn_fail(ATTN_EINVAL, "%s: not an npy file", path);
  int major = at[6];
  if (major < 1 || major > 3)
    return attn_fail(ATTN_EINVAL, "%s: npy version %d; 1 to 3 are known", path, major);
  size_t start = major == 1 ? 10 : 12;
  if (bytes < start) return attn_fail(ATTN_EINVAL, "%s: truncated in the npy header", path);
  size_t length = (size_t)at[8] | (size_t)at[9] << 8;
  if (major > 1) length |= (size_t)at[10] << 16 | (size_t)at[11] << 24;
  if (length > bytes - start || length > NPY_HEADER_MAX)
    return attn_fail(ATTN_EINVAL, "%s: truncated: npy header of %zu bytes in a file of %zu", path, length,
                     bytes);
  cursor c = {path, (const char *)at + start, (const char *)at + start + length};
  attn_status status = parse_dictionary(&c, h);
  if (status) return status;
  h->offset = start + length;
  return ATTN_OK;
}
