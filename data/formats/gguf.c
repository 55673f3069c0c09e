/* gguf.c - GGUF, little-endian, versions 2 and 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md):
 *
 *   "GGUF", u32 version, u64 tensors, u64 keys
 *   keys times:      text key, u32 type, value
 *   tensors times:   text name, u32 rank, u64 length[rank] (fastest axis first), u32 format, u64 offset
 *   zeros up to a multiple of general.alignment (32), then the tensors' bytes; offsets count from there
 *
 * A text is a u64 length and its bytes. A list is u32 type, u64 count and the values. Every field is checked
 * before it is used; lists are walked once when the file is opened, and need no check when they are read. */
#include "data/formats/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/quantised.h"
#include "data/formats/gguf_cursor.h"
#include "data/support/file.h"

enum { RANK_MAX = 4 };

typedef struct entry {
  char *key;
  uint32_t type;
  const uint8_t *at;
} entry;

struct gguf {
  char *path;
  file_map map;
  size_t keys, count;
  entry *key; /* in the order of the keys, as tensors are in that of their names */
  tensor *tensor;
};

/* The formats by their numbers in the file. Those without a format are not widened. */
static const struct {
  const char *name;
  const tensor_format *format;
} formats[] = {[0] = {"F32", &tensor_f32},
               [1] = {"F16", &tensor_f16},
               [2] = {"Q4_0", &tensor_q4_0},
               [3] = {"Q4_1", &tensor_q4_1},
               [6] = {"Q5_0", &tensor_q5_0},
               [7] = {"Q5_1", &tensor_q5_1},
               [8] = {"Q8_0", &tensor_q8_0},
               [9] = {"Q8_1", NULL},
               [10] = {"Q2_K", &tensor_q2_k},
               [11] = {"Q3_K", &tensor_q3_k},
               [12] = {"Q4_K", &tensor_q4_k},
               [13] = {"Q5_K", &tensor_q5_k},
               [14] = {"Q6_K", &tensor_q6_k},
               [15] = {"Q8_K", NULL},
               [16] = {"IQ2_XXS", &tensor_iq2_xxs},
               [17] = {"IQ2_XS", NULL},
               [18] = {"IQ3_XXS", NULL},
               [19] = {"IQ1_S", NULL},
               [20] = {"IQ4_NL", &tensor_iq4_nl},
               [21] = {"IQ3_S", NULL},
               [22] = {"IQ2_S", NULL},
               [23] = {"IQ4_XS", &tensor_iq4_xs},
               [24] = {"I8", NULL},
               [25] = {"I16", NULL},
               [26] = {"I32", NULL},
               [27] = {"I64", NULL},
               [28] = {"F64", &tensor_f64},
               [29] = {"IQ1_M", NULL},
               [30] = {"BF16", &tensor_bf16},
               [34] = {"TQ1_0", &tensor_tq1_0},
               [35] = {"TQ2_0", &tensor_tq2_0},
               [39] = {"MXFP4", &tensor_mxfp4}};

static attn_status read_key(gguf_cursor *c, entry *e) {
  uint64_t type = 0;
  c->part = "the name";
  attn_status status = cursor_name(c, &e->key);
  c->part = "the type";
  if (!status) status = cursor_number(c, 4, &type);
  c->part = "the value";
  e->type = (uint32_t)type;
  e->at = c->at;
  return status ? status : cursor_skip(c, e->type, 1);
}

static attn_status read_format(const gguf_cursor *c, const char *name, uint64_t number,
                               const tensor_format **out) {
  bool known = number < sizeof formats / sizeof *formats && formats[number].name;
  if (!known)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: tensor %s: unknown format %" PRIu64 " of its elements", c->path,
                     name, number);
  if (!formats[number].format)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "%s: tensor %s is %s, which is not read; F32, F16, BF16, F64, the Q formats of 2 to 8 "
                     "bits, IQ2_XXS, IQ4_NL, IQ4_XS, MXFP4, TQ1_0 and TQ2_0 are",
                     c->path, name, formats[number].name);
  *out = formats[number].format;
  return ATTN_OK;
}

/* All but the place: t->at is where the file has the offset. */
static attn_status read_tensor(gguf_cursor *c, tensor *t) {
  uint64_t rank = 0, length = 0, format = 0;
  int64_t factors[RANK_MAX + 1];
  char *name = NULL;
  c->part = "the name";
  attn_status status = cursor_name(c, &name);
  if (status) return status;
  t->name = name;
  t->file = c->path;
  c->part = "the shape";
  status = cursor_number(c, 4, &rank);
  if (!status && (rank < 1 || rank > RANK_MAX)) status = cursor_fail(c, "has not 1 to 4 axes");
  for (uint64_t i = 0; !status && i < rank; i++) {
    status = cursor_number(c, 8, &length);
    if (!status && (length < 1 || length > INT64_MAX))
      status = cursor_fail(c, "has an axis without a length");
    if (!status) t->shape[rank - 1 - i] = (int64_t)length;
  }
  if (status) return status;
  t->rank = (int)rank;
  c->part = "the format";
  status = cursor_number(c, 4, &format);
  if (!status) status = read_format(c, name, format, &t->format);
  c->part = "the offset";
  if (!status) status = cursor_take(c, 8, &t->at);
  if (status) return status;
  int64_t block = t->format->block, columns = t->shape[rank - 1];
  if (columns % block != 0)
    return attn_fail(ATTN_EINVAL,
                     "%s: tensor %s: rows of %" PRId64 " are not whole blocks of %" PRId64 " (%s)", c->path,
                     name, columns, block, t->format->name);
  size_t count = 0;
  memcpy(factors, t->shape, (size_t)rank * sizeof *factors);
  factors[rank] = 8; /* no element is larger */
  if (attn_size_product("elements", factors, (size_t)rank + 1, &count))
    return attn_fail(ATTN_EINVAL, "%s: tensor %s: the sizes of the shape overflow", c->path, name);
  t->count = (int64_t)(count / 8);
  t->bytes = (size_t)(t->count / block * t->format->bytes);
  return ATTN_OK;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static int by_key(const void *a, const void *b) {
  return strcmp(((const entry *)a)->key, ((const entry *)b)->key);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const tensor *)a)->name, ((const tensor *)b)->name);
}

static attn_status read_keys(gguf_cursor *c, uint64_t count, gguf *g) {
  attn_status status = ATTN_OK;
  c->whole = "key";
  for (c->index = 0; !status && c->index < count; c->index++) status = read_key(c, &g->key[g->keys++]);
  if (status) return status;
  qsort(g->key, g->keys, sizeof *g->key, by_key);
  for (size_t i = 1; i < g->keys; i++)
    if (by_key(&g->key[i - 1], &g->key[i]) == 0)
      return attn_fail(ATTN_EINVAL, "%s: key %s is given twice", g->path, g->key[i].key);
  return ATTN_OK;
}

static attn_status read_tensors(gguf_cursor *c, uint64_t count, gguf *g) {
  attn_status status = ATTN_OK;
  c->whole = "tensor";
  for (c->index = 0; !status && c->index < count; c->index++) status = read_tensor(c, &g->tensor[g->count++]);
  if (status) return status;
  qsort(g->tensor, g->count, sizeof *g->tensor, by_name);
  for (size_t i = 1; i < g->count; i++)
    if (by_name(&g->tensor[i - 1], &g->tensor[i]) == 0)
      return attn_fail(ATTN_EINVAL, "%s: tensor %s is stored twice", g->path, g->tensor[i].name);
  return ATTN_OK;
}

/* head: the bytes before the padding. */
static attn_status place_tensors(gguf *g, size_t head) {
  setting s = gguf_get(g, "general.alignment");
  int64_t alignment = s.kind == SETTING_ABSENT ? 32 : s.integer;
  bool power = alignment >= 1 && (alignment & (alignment - 1)) == 0;
  if (!power || (s.kind != SETTING_ABSENT && s.kind != SETTING_INTEGER))
    return attn_fail(ATTN_EINVAL, "%s: general.alignment is not a power of two", g->path);
  size_t unit = (size_t)alignment, start = (head + unit - 1) / unit * unit;
  size_t data = start < g->map.bytes ? g->map.bytes - start : 0;
  for (size_t i = 0; i < g->count; i++) {
    tensor *t = &g->tensor[i];
    uint64_t offset = gguf_load(t->at, 8);
    if (offset % unit != 0)
      return attn_fail(ATTN_EINVAL,
                       "%s: tensor %s: offset %" PRIu64 " is not a multiple of general.alignment=%zu",
                       g->path, t->name, offset, unit);
    if (offset > data || t->bytes > data - offset)
      return attn_fail(ATTN_EINVAL,
                       "%s: tensor %s: %zu bytes from offset %" PRIu64
                       " on are outside the %zu bytes of data",
                       g->path, t->name, t->bytes, offset, data);
    t->at = g->map.at + start + offset;
  }
  return ATTN_OK;
}

static attn_status read_file(gguf *g) {
  gguf_cursor c = {.path = g->path, .start = g->map.at, .at = g->map.at, .end = g->map.at + g->map.bytes};
  uint64_t version = 0, tensors = 0, keys = 0;
  if (!file_begins(&g->map, "GGUF"))
    return attn_fail(ATTN_EINVAL, "%s: not a GGUF file: it does not begin with GGUF", g->path);
  c.at += 4;
  c.part = "the version";
  attn_status status = cursor_number(&c, 4, &version);
  if (!status && version != 2 && version != 3)
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: GGUF version %" PRIu64 "%s; expected 2 or 3, little-endian",
                       g->path, version, version % 65536 == 0 ? " (of big-endian bytes?)" : "");
  c.part = "the number of tensors";
  if (!status) status = cursor_number(&c, 8, &tensors);
  c.part = "the number of keys";
  if (!status) status = cursor_number(&c, 8, &keys);
  if (status) return status;
  /* The least that one of each takes: a name of one byte, a value of one byte, one axis. */
  uint64_t left = (uint64_t)(c.end - c.at);
  if (keys > left / (8 + 1 + 4 + 1) || tensors > left / (8 + 1 + 4 + 8 + 4 + 8))
    return attn_fail(ATTN_EINVAL, "%s: %" PRIu64 " keys and %" PRIu64 " tensors in a file of %zu bytes",
                     g->path, keys, tensors, g->map.bytes);
  g->key = calloc((size_t)keys + 1, sizeof *g->key);
  g->tensor = calloc((size_t)tensors + 1, sizeof *g->tensor);
  if (!g->key || !g->tensor) return attn_fail(ATTN_ENOMEM, "%s: no memory for its keys and tensors", g->path);
  status = read_keys(&c, keys, g);
  if (!status) status = read_tensors(&c, tensors, g);
  return status ? status : place_tensors(g, (size_t)(c.at - c.start));
}

attn_status gguf_open(const char *path, gguf **out) {
  gguf *g = calloc(1, sizeof *g);
  if (!g) return attn_fail(ATTN_ENOMEM, "%s: no memory", path);
  g->path = text_format("%s", path);
  attn_status status = g->path ? file_map_open(path, &g->map) : ATTN_ENOMEM;
  if (!status) status = read_file(g);
  if (!status)
    *out = g;
  else
    gguf_close(g);
  return status;
}

void gguf_close(gguf *g) {
  if (!g) return;
  for (size_t i = 0; i < g->keys; i++) free(g->key[i].key);
  /* The names are ours, and const for those who read them. */
  for (size_t i = 0; i < g->count; i++) free((void *)(uintptr_t)g->tensor[i].name);
  free(g->key);
  free(g->tensor);
  file_map_close(&g->map);
  free(g->path);
  free(g);
}

const char *gguf_path(const gguf *g) { return g->path; }

size_t gguf_count(const gguf *g) { return g->count; }

const tensor *gguf_at(const gguf *g, size_t index) { return index < g->count ? &g->tensor[index] : NULL; }

const tensor *gguf_find(const gguf *g, const char *name) {
  return bsearch(&(tensor){.name = name}, g->tensor, g->count, sizeof *g->tensor, by_name);
}

void gguf_hash(const gguf *g, sha256 *h) { sha256_add(h, g->map.at, g->map.bytes); }

/* ---- values -------------------------------------------------------------------------------------------- */

static const entry *find_key(const gguf *g, const char *key) {
  /* The one searched for is only read. */
  return bsearch(&(entry){.key = (char *)(uintptr_t)key}, g->key, g->keys, sizeof *g->key, by_key);
}

setting gguf_get(const gguf *g, const char *key) {
  const entry *e = find_key(g, key);
  return e ? gguf_decode(e->type, e->at, &(size_t){0}) : (setting){.kind = SETTING_ABSENT};
}

gguf_list gguf_get_list(const gguf *g, const char *key) {
  const entry *e = find_key(g, key);
  if (!e || e->type != GGUF_LIST) return (gguf_list){.count = 0};
  gguf_list list = {
      .type = (uint32_t)gguf_load(e->at, 4), .count = gguf_load(e->at + 4, 8), .at = e->at + 12};
  return list.type == GGUF_LIST ? (gguf_list){.count = 0} : list;
}

setting gguf_next(gguf_list *list) {
  size_t bytes;
  setting s = gguf_decode(list->type, list->at, &bytes);
  list->at += bytes;
  list->count--;
  return s;
}
