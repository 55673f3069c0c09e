/* weights.c - the tensors of a GGUF file, or of a model directory in Hugging Face layout.
 *
 * model.safetensors.index.json: {"metadata": ..., "weight_map": {"tensor":
 * "model-00001-of-00002.safetensors", ...}}. The index and the shards must agree on every tensor, and a shard
 * is a plain name beside the index. */
#include "data/weights/weights.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/formats/safetensors.h"
#include "data/support/json_text.h"
#include "data/support/file.h"

struct weights {
  size_t count, shards;
  safetensors **shard; /* in the order of their names */
  gguf *file;          /* or this instead */
};

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
  size_t found = 0;
  for (size_t i = 0; i < w->shards; i++) {
    for (size_t j = 0; j < safetensors_count(w->shard[i]); j++) {
      const tensor *t = safetensors_at(w->shard[i], j);
      const char *shard = json_string_value(json_object_get(place, t->name));
      if (!shard || strcmp(shard, names[i]) != 0)
        return attn_fail(ATTN_EINVAL, "%s: tensor %s is in %s, but the index does not say so", path, t->name,
                         names[i]);
      found++;
    }
  }
  if (found != json_object_size(place)) {
    const char *name;
    json_t *shard;
    json_object_foreach(place, name, shard) {
      if (!weights_find(w, name))
        return attn_fail(ATTN_EINVAL, "%s: tensor %s is not in %s", path, name, json_string_value(shard));
    }
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
       *index = file_join(directory, "model.safetensors.index.json");
  if (!one || !index) goto out;
  if (access(one, F_OK) == 0)
    status = open_one(one, w);
  else if (access(index, F_OK) == 0)
    status = open_shards(directory, index, w);
  else
    status = attn_fail(ATTN_ENOTFOUND,
                       "%s: neither model.safetensors nor model.safetensors.index.json is there", directory);
  for (size_t i = 0; i < w->shards; i++) w->count += safetensors_count(w->shard[i]);
out:
  free(one);
  free(index);
  return status;
}

attn_status weights_open(const char *path, weights **out) {
  weights *w = calloc(1, sizeof *w);
  if (!w) return attn_fail(ATTN_ENOMEM, "%s: no memory", path);
  attn_status status = file_is_regular(path) ? gguf_open(path, &w->file) : open_directory(path, w);
  if (!status && w->file) w->count = gguf_count(w->file);
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
  gguf_close(w->file);
  free(w);
}

const tensor *weights_find(const weights *w, const char *name) {
  const tensor *found = w->file ? gguf_find(w->file, name) : NULL;
  for (size_t i = 0; !found && i < w->shards; i++) found = safetensors_find(w->shard[i], name);
  return found;
}

size_t weights_count(const weights *w) { return w->count; }

const tensor *weights_at(const weights *w, size_t index) {
  if (w->file) return gguf_at(w->file, index);
  for (size_t i = 0; i < w->shards; i++) {
    size_t here = safetensors_count(w->shard[i]);
    if (index < here) return safetensors_at(w->shard[i], index);
    index -= here;
  }
  return NULL;
}

const gguf *weights_gguf(const weights *w) { return w->file; }

void weights_sha256(const weights *w, char hex[65]) {
  sha256 h;
  sha256_begin(&h);
  for (size_t i = 0; i < w->shards; i++) safetensors_hash(w->shard[i], &h);
  if (w->file) gguf_hash(w->file, &h);
  sha256_end(&h, hex);
}
