/* qkv.c - Q, K and V read from files: matching of shapes, then the first positions of each tensor. */
#include "data/formats/qkv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/safetensors.h"
#include "data/support/file.h"

static const char *const names[3] = {"q", "k", "v"};

void array_print_shape(const data_array *a, char text[96]) {
  size_t used = (size_t)snprintf(text, 96, "[");
  for (int i = 0; i < a->rank; i++)
    used += (size_t)snprintf(text + used, 96 - used, i ? ",%" PRId64 : "%" PRId64, a->shape[i]);
  snprintf(text + used, 96 - used, "]");
}

/* A shape as [batch, heads, n, d]. */
static void widen(const data_array *a, int64_t shape[4]) {
  for (int i = 0; i < 4; i++) shape[i] = i < 4 - a->rank ? 1 : a->shape[i - (4 - a->rank)];
}

attn_status qkv_match(const char *where, const char *const name[3], const data_array array[3], int64_t limit,
                      data_qkv *out) {
  int64_t q[4], k[4], v[4];
  const char *why = NULL;
  bool short_file = false;
  bool has_v = array[2].rank > 0;
  const data_array *value = has_v ? &array[2] : &array[1];
  for (int i = 0; i < (has_v ? 3 : 2); i++)
    if (array[i].rank < 2 || array[i].rank > 4)
      return attn_fail(ATTN_EINVAL,
                       "%s: %s has %d axes; [n,d], [heads,n,d] or [batch,heads,n,d] was expected", where,
                       name[i], array[i].rank);
  widen(&array[0], q);
  widen(&array[1], k);
  widen(value, v);
  if (array[0].rank != array[1].rank || array[1].rank != value->rank)
    why = "the numbers of axes differ";
  else if (array[0].dtype != array[1].dtype || array[1].dtype != value->dtype)
    why = "some are f32, some are f64";
  else if (q[0] != k[0] || k[0] != v[0])
    why = "the batches differ";
  else if (k[1] != v[1])
    why = "k and v differ in heads";
  else if (q[1] % k[1] != 0)
    why = "the heads of k do not divide those of q";
  else if (k[2] != v[2])
    why = "k and v differ in positions";
  else if (q[3] != k[3])
    why = "q and k differ in width";
  else if (limit > q[2] || limit > k[2])
    why = "fewer positions than asked for", short_file = true;
  if (why) {
    char text[3][96];
    for (int i = 0; i < 3; i++) array_print_shape(&array[i], text[i]);
    if (limit > 0)
      return attn_fail(short_file ? ATTN_EUNSUPPORTED : ATTN_EINVAL,
                       "%s: %s %s, %s %s, %s %s, first %" PRId64 " positions: %s", where, name[0], text[0],
                       name[1], text[1], has_v ? name[2] : "no v", has_v ? text[2] : "", limit, why);
    return attn_fail(ATTN_EINVAL, "%s: %s %s, %s %s, %s %s: %s", where, name[0], text[0], name[1], text[1],
                     has_v ? name[2] : "no v", has_v ? text[2] : "", why);
  }
  *out = (data_qkv){.batch = q[0],
                    .heads = q[1],
                    .kv_heads = k[1],
                    .n_q = limit > 0 ? limit : q[2],
                    .n_kv = limit > 0 ? limit : k[2],
                    .d_qk = q[3],
                    .d_v = has_v ? v[3] : 0,
                    .rank = array[0].rank,
                    .dtype = array[0].dtype};
  return ATTN_OK;
}

attn_status qkv_alloc(data_qkv *x) {
  data_array q = {0}, k = {0}, v = {0};
  attn_status status = data_array_make(x->dtype, 4, (int64_t[]){x->batch, x->heads, x->n_q, x->d_qk}, &q);
  if (!status)
    status = data_array_make(x->dtype, 4, (int64_t[]){x->batch, x->kv_heads, x->n_kv, x->d_qk}, &k);
  if (!status && x->d_v > 0)
    status = data_array_make(x->dtype, 4, (int64_t[]){x->batch, x->kv_heads, x->n_kv, x->d_v}, &v);
  if (status) {
    data_array_free(&q);
    data_array_free(&k);
    return status;
  }
  x->q = q.at;
  x->k = k.at;
  x->v = v.at;
  return ATTN_OK;
}

static void copy_first(void *to, int64_t rows, const data_array *from) {
  int64_t shape[4];
  widen(from, shape);
  size_t row = (size_t)shape[3] * attn_dtype_size(from->dtype);
  size_t keep = (size_t)rows * row, step = (size_t)shape[2] * row;
  for (int64_t i = 0; i < shape[0] * shape[1]; i++)
    memcpy((char *)to + (size_t)i * keep, (const char *)from->at + (size_t)i * step, keep);
}

void qkv_copy(data_qkv *x, const data_array array[3]) {
  copy_first(x->q, x->n_q, &array[0]);
  copy_first(x->k, x->n_kv, &array[1]);
  if (x->v) copy_first(x->v, x->n_kv, &array[2]);
}

/* Matches the arrays, cuts them and moves them into *out. */
static attn_status from_arrays(const char *where, const char *const name[3], const data_array array[3],
                               int64_t limit, char *description, data_qkv *out) {
  data_qkv made;
  if (!description) return ATTN_ENOMEM;
  attn_status status = qkv_match(where, name, array, limit, &made);
  if (!status) status = qkv_alloc(&made);
  if (status) {
    free(description);
    return status;
  }
  qkv_copy(&made, array);
  made.description = description;
  *out = made;
  return ATTN_OK;
}

attn_status data_qkv_read_npy(const char *q, const char *k, const char *v, int64_t limit, data_qkv *out) {
  const char *paths[3] = {q, k, v};
  data_array array[3] = {{0}};
  attn_status status = ATTN_OK;
  for (int i = 0; i < 3; i++) {
    if (!paths[i]) continue;
    status = data_npy_read(paths[i], &array[i]);
    if (status) goto out;
  }
  char *description = v ? text_format("%s, %s, %s", q, k, v) : text_format("%s, %s", q, k);
  status = from_arrays("npy files", paths, array, limit, description, out);
out:
  for (int i = 0; i < 3; i++) data_array_free(&array[i]);
  return status;
}

attn_status data_qkv_read_safetensors(const char *path, int64_t limit, data_qkv *out) {
  safetensors *file = NULL;
  data_array array[3] = {{0}};
  attn_status status = safetensors_open(path, &file);
  if (status) return status;
  for (int i = 0; i < 3; i++) {
    const tensor *t = safetensors_find(file, names[i]);
    if (!t) {
      status = attn_fail(ATTN_EINVAL, "%s: no tensor %s; q, k and v were expected", path, names[i]);
      goto out;
    }
    status = tensor_to_array(t, &array[i]);
    if (status) goto out;
  }
  status = from_arrays(path, names, array, limit, text_format("%s", path), out);
out:
  for (int i = 0; i < 3; i++) data_array_free(&array[i]);
  safetensors_close(file);
  return status;
}

attn_status data_qkv_read(const char *path, int64_t limit, data_qkv *out) {
  static const uint8_t signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  file_map map = {0};
  attn_status status = file_map_open(path, &map);
  if (status) return status;
  bool hdf5 = map.bytes >= sizeof signature && memcmp(map.at, signature, sizeof signature) == 0;
  /* A safetensors file is a length, then a JSON object. */
  bool tensors = map.bytes > 8 && map.at[8] == '{';
  file_map_close(&map);
  if (hdf5) return data_qkv_read_hdf5(path, limit, out);
  if (tensors) return data_qkv_read_safetensors(path, limit, out);
  return attn_fail(ATTN_EINVAL, "%s: neither an HDF5 nor a safetensors file", path);
}
