/* safetensors.c - safetensors: an 8-byte little-endian length, a JSON object of that length, then the
 * tensors' bytes.
 *
 * {"name": {"dtype": "F16", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {"key":
 * "text"}}; offsets count from the end of the header, and the tensors fill the rest of the file without
 * overlap or gap (https://huggingface.co/docs/safetensors). Every field of the header is checked before it is
 * used. */
#include "data/formats/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/quantised.h"
#include "data/support/file.h"
#include "data/support/json_text.h"

enum { HEADER_MAX = 100000000 }; /* the limit of the format's own reader */

struct safetensors {
  char *path;
  file_map map;
  json_t *header; /* owns the names */
  size_t count;
  tensor *tensor;
};

static const tensor_format others[] = {{.name = "BOOL", 1, 1}, {.name = "U8", 1, 1},  {.name = "I8", 1, 1},
                                       {.name = "I16", 1, 2},  {.name = "U16", 1, 2}, {.name = "I32", 1, 4},
                                       {.name = "U32", 1, 4},  {.name = "I64", 1, 8}, {.name = "U64", 1, 8}};

/* NULL: the format knows no such type. */
static const tensor_format *find_format(const char *dtype) {
  static const tensor_format *const floating[] = {&tensor_f32, &tensor_f16,  &tensor_bf16,
                                                  &tensor_f64, &tensor_e4m3, &tensor_e5m2};
  for (size_t i = 0; i < sizeof floating / sizeof *floating; i++)
    if (strcmp(dtype, floating[i]->name) == 0) return floating[i];
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strcmp(dtype, others[i].name) == 0) return &others[i];
  return NULL;
}

static attn_status read_shape(const char *path, const char *name, json_t *shape, tensor *t) {
  int64_t factors[TENSOR_RANK_MAX] = {0};
  bool empty = false;
  if (!json_is_array(shape) || json_array_size(shape) > TENSOR_RANK_MAX)
    return attn_fail(ATTN_EINVAL, "%s: tensor %s: shape is not a list of at most %d lengths", path, name,
                     TENSOR_RANK_MAX);
  t->rank = (int)json_array_size(shape);
  for (int i = 0; i < t->rank; i++) {
    json_t *length = json_array_get(shape, (size_t)i);
    if (!json_is_integer(length) || json_integer_value(length) < 0)
      return attn_fail(ATTN_EINVAL, "%s: tensor %s: length %d of the shape is not a natural number", path,
                       name, i);
    factors[i] = t->shape[i] = json_integer_value(length);
    empty = empty || t->shape[i] == 0;
  }
  size_t count = empty ? 0 : 1;
  if (!empty && t->rank > 0 && attn_size_product("elements", factors, (size_t)t->rank, &count))
    return attn_fail(ATTN_EINVAL, "%s: tensor %s: the sizes of the shape overflow", path, name);
  if (count > INT64_MAX / 8)
    return attn_fail(ATTN_EINVAL, "%s: tensor %s: the sizes of the shape overflow", path, name);
  t->count = (int64_t)count;
  return ATTN_OK;
}

/* Fills *t from its JSON object; data and size: what follows the header. */
static attn_status read_tensor(const char *path, const char *name, json_t *about, const uint8_t *data,
                               size_t size, tensor *t) {
  const char *key;
  json_t *value;
  if (!json_is_object(about))
    return attn_fail(ATTN_EINVAL, "%s: tensor %s is not described by an object", path, name);
  json_object_foreach(about, key, value) {
    if (strcmp(key, "dtype") && strcmp(key, "shape") && strcmp(key, "data_offsets"))
      return attn_fail(ATTN_EINVAL, "%s: tensor %s: unknown key %s", path, name, key);
  }
  const char *dtype = json_string_value(json_object_get(about, "dtype"));
  if (!dtype) return attn_fail(ATTN_EINVAL, "%s: tensor %s: no dtype", path, name);
  t->format = find_format(dtype);
  if (!t->format) return attn_fail(ATTN_EINVAL, "%s: tensor %s: unknown dtype %s", path, name, dtype);
  attn_status status = read_shape(path, name, json_object_get(about, "shape"), t);
  if (status) return status;
  json_t *offsets = json_object_get(about, "data_offsets");
  json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
  if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !json_is_integer(first) ||
      !json_is_integer(last))
    return attn_fail(ATTN_EINVAL, "%s: tensor %s: data_offsets is not [begin, end]", path, name);
  int64_t begin = json_integer_value(first), end = json_integer_value(last);
  if (begin < 0 || end < begin || (uint64_t)end > size)
    return attn_fail(ATTN_EINVAL,
                     "%s: tensor %s: offsets [%" PRId64 ", %" PRId64 "] are outside the %zu bytes of data",
                     path, name, begin, end, size);
  if (end - begin != t->count * t->format->bytes)
    return attn_fail(ATTN_EINVAL, "%s: tensor %s: %" PRId64 " bytes, but its shape and dtype need %" PRId64,
                     path, name, end - begin, t->count * t->format->bytes);
  t->at = data + begin;
  t->bytes = (size_t)(end - begin);
  return ATTN_OK;
}

static int by_place(const void *a, const void *b) {
  const tensor *x = a, *y = b;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  /* Empty tensors share the place of their successor. */
  return (x->count > 0) - (y->count > 0);
}

static attn_status check_layout(const safetensors *s, const uint8_t *data, size_t size) {
  size_t place = 0;
  for (size_t i = 0; i < s->count; i++) {
    const tensor *t = &s->tensor[i];
    size_t begin = (size_t)(t->at - data);
    if (begin < place) return attn_fail(ATTN_EINVAL, "%s: tensor %s overlaps another one", s->path, t->name);
    if (begin > place)
      return attn_fail(ATTN_EINVAL, "%s: %zu bytes before tensor %s belong to no tensor", s->path,
                       begin - place, t->name);
    place = begin + t->bytes;
  }
  if (place != size)
    return attn_fail(ATTN_EINVAL, "%s: the last %zu bytes belong to no tensor", s->path, size - place);
  return ATTN_OK;
}

static attn_status read_header(safetensors *s) {
  const char *path = s->path;
  uint64_t length = 0;
  if (s->map.bytes < 8) return attn_fail(ATTN_EINVAL, "%s: too short for a safetensors file", path);
  for (int i = 7; i >= 0; i--) length = length << 8 | s->map.at[i];
  if (length > s->map.bytes - 8)
    return attn_fail(ATTN_EINVAL, "%s: a header of %" PRIu64 " bytes in a file of %zu", path, length,
                     s->map.bytes);
  if (length > HEADER_MAX)
    return attn_fail(ATTN_EINVAL, "%s: a header of %" PRIu64 " bytes; at most %d are allowed", path, length,
                     HEADER_MAX);
  json_error_t error;
  attn_status parsed = json_parse((const char *)s->map.at + 8, (size_t)length, &error, &s->header);
  if (parsed == ATTN_ENOMEM) return parsed;
  if (parsed) return attn_fail(ATTN_EINVAL, "%s: the header is not JSON: %s", path, error.text);
  if (!json_is_object(s->header)) return attn_fail(ATTN_EINVAL, "%s: the header is not a JSON object", path);
  const uint8_t *data = s->map.at + 8 + length;
  size_t size = s->map.bytes - 8 - (size_t)length;
  s->tensor = calloc(json_object_size(s->header) + 1, sizeof *s->tensor);
  if (!s->tensor) return attn_fail(ATTN_ENOMEM, "%s: no memory for its table of tensors", path);
  const char *name;
  json_t *about;
  json_object_foreach(s->header, name, about) {
    if (strcmp(name, "__metadata__") == 0) continue;
    tensor *t = &s->tensor[s->count++];
    t->name = name;
    t->file = path;
    attn_status status = read_tensor(path, name, about, data, size, t);
    if (status) return status;
  }
  qsort(s->tensor, s->count, sizeof *s->tensor, by_place);
  return check_layout(s, data, size);
}

attn_status safetensors_open(const char *path, safetensors **out) {
  safetensors *s = calloc(1, sizeof *s);
  if (!s) return attn_fail(ATTN_ENOMEM, "%s: no memory", path);
  s->path = text_format("%s", path);
  attn_status status = s->path ? file_map_open(path, &s->map) : ATTN_ENOMEM;
  if (!status) status = read_header(s);
  if (status) {
    safetensors_close(s);
    return status;
  }
  *out = s;
  return ATTN_OK;
}

void safetensors_close(safetensors *s) {
  if (!s) return;
  free(s->tensor);
  json_decref(s->header);
  file_map_close(&s->map);
  free(s->path);
  free(s);
}

size_t safetensors_count(const safetensors *s) { return s->count; }

const tensor *safetensors_at(const safetensors *s, size_t index) {
  return index < s->count ? &s->tensor[index] : NULL;
}

const tensor *safetensors_find(const safetensors *s, const char *name) {
  for (size_t i = 0; i < s->count; i++)
    if (strcmp(s->tensor[i].name, name) == 0) return &s->tensor[i];
  return NULL;
}

void safetensors_hash(const safetensors *s, sha256 *h) { sha256_add(h, s->map.at, s->map.bytes); }
