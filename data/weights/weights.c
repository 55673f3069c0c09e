/* weights.c - the tensors of GGUF files, or of a model directory in Hugging Face layout.
 *
 * A GGUF file of several parts has the keys split.no, from 0, and split.count, and the name
 * NAME-00001-of-00003.gguf, from 1; what is no tensor is in the first.
 *
 * model.safetensors.index.json: {"metadata": ..., "weight_map": {"tensor":
 * "model-00001-of-00002.safetensors", ...}}. The index and the shards must agree on every tensor, and a shard
 * is a plain name beside the index. */
#include "data/weights/weights.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/formats/safetensors.h"
#include "data/support/json_text.h"
#include "data/support/file.h"

struct weights {
  size_t count, shards, parts;
  safetensors **shard; /* in the order of their names */
  gguf **part;         /* or these instead */
};

enum { PARTS_MAX = 99999 };

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static attn_status load_index(const char *path, json_t **out) {
  file_map map = {0};
  json_error_t error;
  attn_status status = file_map_open(path, &map);
  if (status) return status;
  json_t *index = NULL;
  status = json_parse((const char *)map.at, map.bytes, &error, &index);
  file_map_close(&map);
  if (status == ATTN_ENOMEM) return status;
  if (status)
    return attn_fail(ATTN_EINVAL, "%s:%d:%d: not JSON: %s", path, error.line, error.column, error.text);
  const char *name;
  json_t *shard, *place = json_object_get(index, "weight_map");
  if (json_object_size(place) == 0)
    status = attn_fail(ATTN_EINVAL, "%s: no object weight_map with tensors", path);
  json_object_foreach(place, name, shard) {
    const char *file = json_string_value(shard);
    if (!status && (!file || !*file || strchr(file, '/') || file[0] == '.'))
      status = attn_fail(ATTN_EINVAL, "%s: tensor %s: its shard is not the name of a file beside the index",
                         path, name);
  }
  if (!status)
    *out = index;
  else
    json_decref(index);
  return status;
}

/* Distinct names of shards, sorted; they live in the JSON value. */
static attn_status shard_names(json_t *place, const char ***out, size_t *count) {
  const char **names = calloc(json_object_size(place), sizeof *names);
  if (!names) return attn_fail(ATTN_ENOMEM, "no memory for the names of shards");
  size_t all = 0, kept = 0;
  const char *name;
  json_t *shard;
  json_object_foreach(place, name, shard) names[all++] = json_string_value(shard);
  qsort(names, all, sizeof *names, by_name);
  for (size_t i = 0; i < all; i++)
    if (kept == 0 || strcmp(names[kept - 1], names[i]) != 0) names[kept++] = names[i];
  *out = names;
  *count = kept;
  return ATTN_OK;
}

/* Checks that every tensor of the index is in its shard, and every tensor of a shard is in the index. */
static attn_status check_index(const char *path, json_t *place, const char **names, const weights *w) {
  const char *name;
  json_t *shard_of;
  for (size_t i = 0; i < w->shards; i++) {
    for (size_t j = 0; j < safetensors_count(w->shard[i]); j++) {
      const tensor *t = safetensors_at(w->shard[i], j);
      const char *shard = json_string_value(json_object_get(place, t->name));
      if (!shard || strcmp(shard, names[i]) != 0)
        return attn_fail(ATTN_EINVAL, "%s: tensor %s is in %s, but the index does not say so", path, t->name,
                         names[i]);
    }
  }
  json_object_foreach(place, name, shard_of) {
    if (!weights_find(w, name))
      return attn_fail(ATTN_EINVAL, "%s: tensor %s is not in %s", path, name, json_string_value(shard_of));
  }
  return ATTN_OK;
}

static attn_status open_one(const char *path, weights *w) {
  w->shard = calloc(1, sizeof *w->shard);
  if (!w->shard) return attn_fail(ATTN_ENOMEM, "%s: no memory", path);
  attn_status status = safetensors_open(path, &w->shard[0]);
  if (!status) w->shards = 1;
  return status;
}

static attn_status open_shards(const char *directory, const char *path, weights *w) {
  json_t *index = NULL;
  const char **names = NULL;
  size_t count = 0;
  attn_status status = load_index(path, &index);
  if (status) return status;
  json_t *place = json_object_get(index, "weight_map");
  status = shard_names(place, &names, &count);
  if (status) goto out;
  w->shard = calloc(count, sizeof *w->shard);
  if (!w->shard) {
    status = attn_fail(ATTN_ENOMEM, "%s: no memory", path);
    goto out;
  }
  for (size_t i = 0; i < count; i++) {
    char *file = file_join(directory, names[i]);
    status = file ? safetensors_open(file, &w->shard[i]) : ATTN_ENOMEM;
    free(file);
    if (status) goto out;
    w->shards++;
  }
  status = check_index(path, place, names, w);
out:
  free(names);
  json_decref(index);
  return status;
}

static attn_status open_directory(const char *directory, weights *w) {
  attn_status status = ATTN_ENOMEM;
  char *one = file_join(directory, "model.safetensors"),
       *index = file_join(directory, "model.safetensors.index.json"),
       *pickle = file_join(directory, "pytorch_model.bin");
  if (!one || !index) goto out;
  if (access(one, F_OK) == 0)
    status = open_one(one, w);
  else if (access(index, F_OK) == 0)
    status = open_shards(directory, index, w);
  else
    status = attn_fail(ATTN_ENOTFOUND,
                       "%s: neither model.safetensors nor model.safetensors.index.json is there%s", directory,
                       pickle && access(pickle, F_OK) == 0
                           ? "; of pytorch_model.bin transformers' save_pretrained makes one"
                           : "");
  for (size_t i = 0; i < w->shards; i++) w->count += safetensors_count(w->shard[i]);
out:
  free(one);
  free(index);
  free(pickle);
  return status;
}

/* -- GGUF -- */

/* A key that says which part a file is, or of how many. */
static attn_status read_split(const gguf *g, const char *key, int64_t preset, int64_t *out) {
  const setting s = gguf_get(g, key);
  *out = s.kind == SETTING_ABSENT ? preset : s.integer;
  if (s.kind != SETTING_ABSENT && (s.kind != SETTING_INTEGER || s.integer < 0 || s.integer > PARTS_MAX))
    return attn_fail(ATTN_EINVAL, "%s: %s is not an integer from 0 to %d", gguf_path(g), key, PARTS_MAX);
  return ATTN_OK;
}

static attn_status check_part(const weights *w, int64_t index, int64_t count) {
  const gguf *g = w->part[index];
  int64_t no = 0, of = 1;
  attn_status status = read_split(g, "split.no", 0, &no);
  if (!status) status = read_split(g, "split.count", 1, &of);
  if (!status && (no != index || of != count))
    status = attn_fail(ATTN_EINVAL,
                       "%s: split.no=%" PRId64 ", split.count=%" PRId64 "; expected %" PRId64 " and %" PRId64,
                       gguf_path(g), no, of, index, count);
  for (size_t t = 0; !status && t < gguf_count(g); t++)
    for (int64_t i = 0; !status && i < index; i++)
      if (gguf_find(w->part[i], gguf_at(g, t)->name))
        status = attn_fail(ATTN_EINVAL, "%s: tensor %s is in %s, too", gguf_path(g), gguf_at(g, t)->name,
                           gguf_path(w->part[i]));
  return status;
}

/* *w is freed by weights_close, whatever is open. */
static attn_status open_parts(const char *path, weights *w) {
  gguf *first = NULL;
  int64_t count = 1;
  char end[40];
  attn_status status = gguf_open(path, &first);
  if (!status) status = read_split(first, "split.count", 1, &count);
  if (!status && !(w->part = calloc((size_t)count + 1, sizeof *w->part)))
    status = attn_fail(ATTN_ENOMEM, "%s: no memory for its parts", path);
  if (status) {
    gguf_close(first);
    return status;
  }
  w->part[w->parts++] = first;
  if (count <= 1) return ATTN_OK;
  status = check_part(w, 0, count);
  const size_t tail = (size_t)snprintf(end, sizeof end, "-%05d-of-%05" PRId64 ".gguf", 1, count),
               length = strlen(path);
  if (!status && (length < tail || strcmp(path + length - tail, end) != 0))
    status = attn_fail(ATTN_EINVAL, "%s: split.count=%" PRId64 ", and the name does not end in %s", path,
                       count, end);
  for (int64_t i = 1; !status && i < count; i++) {
    char *name =
        text_format("%.*s-%05" PRId64 "-of-%05" PRId64 ".gguf", (int)(length - tail), path, i + 1, count);
    status = name ? gguf_open(name, &w->part[i]) : ATTN_ENOMEM;
    free(name);
    if (!status) status = check_part(w, (int64_t)w->parts++, count);
  }
  return status;
}

attn_status weights_open(const char *path, weights **out) {
  weights *w = calloc(1, sizeof *w);
  if (!w) return attn_fail(ATTN_ENOMEM, "%s: no memory", path);
  attn_status status = file_is_regular(path) ? open_parts(path, w) : open_directory(path, w);
  for (size_t i = 0; i < w->parts; i++) w->count += gguf_count(w->part[i]);
  if (!status)
    *out = w;
  else
    weights_close(w);
  return status;
}

void weights_close(weights *w) {
  if (!w) return;
  for (size_t i = 0; i < w->shards; i++) safetensors_close(w->shard[i]);
  free(w->shard);
  for (size_t i = 0; i < w->parts; i++) gguf_close(w->part[i]);
  free(w->part);
  free(w);
}

const tensor *weights_find(const weights *w, const char *name) {
  const tensor *found = NULL;
  for (size_t i = 0; !found && i < w->parts; i++) found = gguf_find(w->part[i], name);
  for (size_t i = 0; !found && i < w->shards; i++) found = safetensors_find(w->shard[i], name);
  return found;
}

size_t weights_count(const weights *w) { return w->count; }

const tensor *weights_at(const weights *w, size_t index) {
  for (size_t i = 0; i < w->parts; i++) {
    const size_t here = gguf_count(w->part[i]);
    if (index < here) return gguf_at(w->part[i], index);
    index -= here;
  }
  for (size_t i = 0; i < w->shards; i++) {
    size_t here = safetensors_count(w->shard[i]);
    if (index < here) return safetensors_at(w->shard[i], index);
    index -= here;
  }
  return NULL;
}

const gguf *weights_gguf(const weights *w) { return w->parts ? w->part[0] : NULL; }

void weights_sha256(const weights *w, char hex[65]) {
  sha256 h;
  sha256_begin(&h);
  for (size_t i = 0; i < w->shards; i++) safetensors_hash(w->shard[i], &h);
  for (size_t i = 0; i < w->parts; i++) gguf_hash(w->part[i], &h);
  sha256_end(&h, hex);
}
