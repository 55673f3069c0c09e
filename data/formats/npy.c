/* npy.c - NumPy's .npy files.
 *
 * Format: "\x93NUMPY", major, minor, header length (2 bytes little-endian in version 1, 4 in versions 2 and
 * 3), then a Python dictionary with exactly the keys descr, fortran_order and shape, padded with blanks and
 * ended by a newline, then the elements (numpy.lib.format). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "data/formats/kinds.h"
#include "data/formats/npy.h"

enum { HEADER_MAX = 1 << 20 };

typedef struct npy_header {
  char descr[NPY_DESCR_MAX];
  bool fortran;
  int rank;
  int64_t shape[DATA_RANK_MAX];
  size_t offset; /* of the elements */
} npy_header;

/* A cursor over the dictionary's text. */
typedef struct cursor {
  const char *path, *at, *end;
} cursor;

static void skip_blanks(cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) c->at++;
}

static bool take(cursor *c, char wanted) {
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
  if (!take(c, quote)) {
    quote = '"';
    if (!take(c, quote)) return false;
  }
  size_t length = 0;
  while (c->at < c->end && *c->at != quote) {
    if (length + 1 == size || *c->at < ' ' || *c->at > '~') return false;
    text[length++] = *c->at++;
  }
  text[length] = '\0';
  return take(c, quote);
}

static bool take_size(cursor *c, int64_t *out) {
  int64_t value = 0;
  skip_blanks(c);
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
  if (!take(c, '(')) return attn_fail(ATTN_EINVAL, "%s: npy header: shape is not a tuple", c->path);
  h->rank = 0;
  while (!take(c, ')')) {
    int64_t length;
    if (!take_size(c, &length))
      return attn_fail(ATTN_EINVAL, "%s: npy header: shape is not a tuple of integers below 2^63", c->path);
    if (length == 0)
      return attn_fail(ATTN_EINVAL, "%s: the array is empty: axis %d has length 0", c->path, h->rank);
    if (h->rank == DATA_RANK_MAX)
      return attn_fail(ATTN_EINVAL, "%s: more than %d axes", c->path, DATA_RANK_MAX);
    h->shape[h->rank++] = length;
    if (take(c, ',')) continue;
    if (take(c, ')')) break;
    return attn_fail(ATTN_EINVAL, "%s: npy header: shape is not a tuple of integers", c->path);
  }
  if (h->rank == 0) return attn_fail(ATTN_EINVAL, "%s: a scalar, where an array was expected", c->path);
  return ATTN_OK;
}

static attn_status parse_dictionary(cursor *c, npy_header *h) {
  bool seen[3] = {false};
  if (!take(c, '{')) return attn_fail(ATTN_EINVAL, "%s: npy header: no dictionary", c->path);
  while (!take(c, '}')) {
    char key[NPY_DESCR_MAX];
    if (!take_text(c, key, sizeof key) || !take(c, ':'))
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
    if (!take(c, ',') && (skip_blanks(c), c->at == c->end || *c->at != '}'))
      return attn_fail(ATTN_EINVAL, "%s: npy header: malformed dictionary", c->path);
  }
  skip_blanks(c);
  if (c->at != c->end) return attn_fail(ATTN_EINVAL, "%s: npy header: text after the dictionary", c->path);
  if (!seen[0] || !seen[1] || !seen[2])
    return attn_fail(ATTN_EINVAL, "%s: npy header: lacks descr, fortran_order or shape", c->path);
  return ATTN_OK;
}

static attn_status parse_header(const char *path, const file_map *map, npy_header *h) {
  if (map->bytes < 10 || memcmp(map->at, "\x93NUMPY", 6) != 0)
    return attn_fail(ATTN_EINVAL, "%s: not an npy file", path);
  int major = map->at[6];
  if (major < 1 || major > 3)
    return attn_fail(ATTN_EINVAL, "%s: npy version %d; 1 to 3 are known", path, major);
  size_t start = major == 1 ? 10 : 12;
  if (map->bytes < start) return attn_fail(ATTN_EINVAL, "%s: truncated in the npy header", path);
  size_t length = (size_t)map->at[8] | (size_t)map->at[9] << 8;
  if (major > 1) length |= (size_t)map->at[10] << 16 | (size_t)map->at[11] << 24;
  if (length > map->bytes - start || length > HEADER_MAX)
    return attn_fail(ATTN_EINVAL, "%s: truncated: npy header of %zu bytes in a file of %zu", path, length,
                     map->bytes);
  cursor c = {path, (const char *)map->at + start, (const char *)map->at + start + length};
  attn_status status = parse_dictionary(&c, h);
  if (status) return status;
  if (h->fortran) return attn_fail(ATTN_EINVAL, "%s: Fortran order; save it in C order", path);
  h->offset = start + length;
  return ATTN_OK;
}

/* The file must hold the header and the elements, and nothing else. */
static attn_status check_size(const char *path, const file_map *map, const npy_header *h, size_t element,
                              size_t *bytes) {
  int64_t factors[DATA_RANK_MAX + 1] = {(int64_t)element};
  size_t wanted, there = map->bytes - h->offset;
  for (int i = 0; i < h->rank; i++) factors[i + 1] = h->shape[i];
  if (attn_size_product("bytes", factors, (size_t)h->rank + 1, &wanted))
    return attn_fail(ATTN_EINVAL, "%s: the sizes of the shape overflow", path);
  if (there < wanted)
    return attn_fail(ATTN_EINVAL, "%s: truncated: the shape needs %zu bytes, %zu are there", path, wanted,
                     there);
  if (there > wanted)
    return attn_fail(ATTN_EINVAL, "%s: %zu bytes after the end of the array", path, there - wanted);
  *bytes = wanted;
  return ATTN_OK;
}

static const struct {
  const char *descr;
  size_t bytes;
} types[] = {{"<f4", 4}, {"<f8", 8}, {"<i4", 4}, {"<i8", 8}, {"|u1", 1}, {"|b1", 1}};

attn_status npy_open(const char *path, npy_array *out) {
  npy_header h = {.rank = 0};
  npy_array made = {.rank = 0};
  attn_status status = file_map_open(path, &made.map);
  if (status) return status;
  if ((status = parse_header(path, &made.map, &h))) goto out;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(h.descr, types[i].descr) == 0) made.element = types[i].bytes;
  if (!made.element) {
    status = attn_fail(ATTN_EINVAL,
                       "%s: elements are '%s'; '<f4', '<f8', '<i4', '<i8', '|u1' or '|b1' was expected", path,
                       h.descr);
    goto out;
  }
  if ((status = check_size(path, &made.map, &h, made.element, &made.bytes))) goto out;
  memcpy(made.descr, h.descr, sizeof made.descr);
  memcpy(made.shape, h.shape, sizeof made.shape);
  made.rank = h.rank;
  made.at = made.map.at + h.offset;
  *out = made;
  return ATTN_OK;
out:
  file_map_close(&made.map);
  return status;
}

void npy_close(npy_array *a) { file_map_close(&a->map); }

bool npy_is(const npy_array *a, const char *descr) { return strcmp(a->descr, descr) == 0; }

attn_status data_npy_read(const char *path, data_array *out) {
  npy_array file;
  data_array made = {0};
  attn_status status = npy_open(path, &file);
  if (status) return status;
  const bool wide = npy_is(&file, "<f8");
  if (!wide && !npy_is(&file, "<f4"))
    status = attn_fail(ATTN_EINVAL, "%s: elements are '%s'; '<f4' or '<f8' was expected", path, file.descr);
  if (!status) status = data_array_make(wide ? ATTN_F64 : ATTN_F32, file.rank, file.shape, &made);
  if (!status) {
    memcpy(made.at, file.at, file.bytes);
    *out = made;
  }
  npy_close(&file);
  return status;
}

attn_status data_npy_read_ids(const char *path, int64_t **out, int64_t *count, data_array *shape) {
  npy_array file;
  attn_status status = npy_open(path, &file);
  if (status) return status;
  int64_t *made = NULL;
  const bool wide = npy_is(&file, "<i8");
  const size_t there = file.bytes / file.element;
  if (!wide && !npy_is(&file, "<i4"))
    status = attn_fail(ATTN_EINVAL, "%s: elements are '%s'; '<i4' or '<i8' was expected", path, file.descr);
  else if (there > SIZE_MAX / sizeof *made || !(made = malloc(there * sizeof *made)))
    status = attn_fail(ATTN_ENOMEM, "%s: no memory for %zu numbers", path, there);
  for (size_t i = 0; !status && i < there; i++) {
    int32_t narrow;
    memcpy(wide ? (void *)&made[i] : &narrow, file.at + i * file.element, file.element);
    if (!wide) made[i] = narrow;
  }
  if (!status) {
    *out = made;
    *count = (int64_t)there;
    shape->rank = file.rank;
    memcpy(shape->shape, file.shape, sizeof file.shape);
  }
  npy_close(&file);
  return status;
}

static bool is_npy(const char *path, const file_map *content) {
  (void)path;
  return file_begins(content, "\x93NUMPY");
}

const output_kind kind_npy = {"an .npy file", is_npy};

static attn_status write_npy(const char *path, const char *descr, size_t element, int rank,
                             const int64_t *shape, const void *at) {
  char header[256];
  int64_t factors[DATA_RANK_MAX + 1] = {(int64_t)element};
  size_t bytes;
  size_t used = 10 + (size_t)snprintf(header + 10, sizeof header - 10,
                                      "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (int i = 0; i < rank; i++) {
    factors[i + 1] = shape[i];
    used += (size_t)snprintf(header + used, sizeof header - used,
                             rank == 1 ? "%" PRId64 ","
                             : i       ? ", %" PRId64
                                       : "%" PRId64,
                             shape[i]);
  }
  used += (size_t)snprintf(header + used, sizeof header - used, "), }");
  attn_status status = attn_size_product("bytes of an npy file", factors, (size_t)rank + 1, &bytes);
  if (status) return status;
  /* The elements start at a multiple of 64, after the newline. */
  size_t total = (used + 1 + 63) / 64 * 64;
  memset(header + used, ' ', total - used - 1);
  header[total - 1] = '\n';
  memcpy(header, "\x93NUMPY\x01\x00", 8);
  header[8] = (char)((total - 10) & 255);
  header[9] = (char)((total - 10) >> 8);
  return output_write(path, &kind_npy, (file_part[]){{header, total}, {at, bytes}}, 2);
}

attn_status data_npy_write(const char *path, const data_array *array) {
  return write_npy(path, array->dtype == ATTN_F64 ? "<f8" : "<f4", attn_dtype_size(array->dtype), array->rank,
                   array->shape, array->at);
}

attn_status data_npy_write_u8(const char *path, int rank, const int64_t *shape, const uint8_t *at) {
  return write_npy(path, "|u1", 1, rank, shape, at);
}
