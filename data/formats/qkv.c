/* qkv.c - Q, K and V read from files: matching of shapes, then the first positions of each tensor. */
#include "data/formats/qkv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/npy.h"
#include "data/formats/safetensors.h"
#include "data/support/file.h"

const char *const data_layout_names[] = {"bhnd", "bnhd", NULL};

attn_status qkv_names_parse(const char *text, qkv_names *out) {
  qkv_names n = {.text = text_format("%s", text && *text ? text : "q,k,v")};
  if (!n.text) return ATTN_ENOMEM;
  const char separator = strchr(n.text, ',') ? ',' : '+';
  char *next = n.text;
  int count = 0;
  for (; next && count < 3; count++) {
    n.of[count] = next;
    if ((next = strchr(next, separator))) *next++ = '\0';
  }
  if (!next && count == 3 && *n.of[0] && *n.of[1] && *n.of[2]) {
    *out = n;
    return ATTN_OK;
  }
  free(n.text);
  return attn_fail(ATTN_EINVAL, "names %s: expected three names, such as query,key,value", text);
}

void qkv_names_free(qkv_names *n) {
  free(n->text);
  *n = (qkv_names){.text = NULL};
}

void array_print_shape(const data_array *a, char text[96]) {
  size_t used = (size_t)snprintf(text, 96, "[");
  for (int i = 0; i < a->rank; i++)
    used += (size_t)snprintf(text + used, 96 - used, i ? ",%" PRId64 : "%" PRId64, a->shape[i]);
  snprintf(text + used, 96 - used, "]");
}

int qkv_axis(const data_array *a, data_layout layout) {
  return a->rank > 2 && layout == DATA_BNHD ? a->rank - 3 : a->rank - 2;
}

/* A shape as [batch, heads, n, d]. */
static void widen(const data_array *a, data_layout layout, int64_t shape[4]) {
  for (int i = 0; i < 4; i++) shape[i] = i < 4 - a->rank ? 1 : a->shape[i - (4 - a->rank)];
  if (a->rank < 3 || layout == DATA_BHND) return;
  const int64_t n = shape[1];
  shape[1] = shape[2];
  shape[2] = n;
}

typedef struct triple {
  int64_t q[4], k[4], v[4];
} triple;

/* Why three arrays do not fit together; NULL: they do. */
static const char *misfit(const data_array array[3], data_layout layout, triple *shape) {
  const data_array *value = array[2].rank > 0 ? &array[2] : &array[1];
  int64_t *q = shape->q, *k = shape->k, *v = shape->v;
  widen(&array[0], layout, q);
  widen(&array[1], layout, k);
  widen(value, layout, v);
  if (array[0].rank != array[1].rank || array[1].rank != value->rank) return "the numbers of axes differ";
  if (array[0].dtype != array[1].dtype || array[1].dtype != value->dtype) return "some are f32, some are f64";
  if (q[0] != k[0] || k[0] != v[0]) return "the batches differ";
  if (k[1] != v[1]) return "k and v differ in heads";
  if (q[1] % k[1] != 0) return "the heads of k do not divide those of q";
  if (k[2] != v[2]) return "k and v differ in positions";
  return q[3] != k[3] ? "q and k differ in width" : NULL;
}

attn_status qkv_match(const char *where, const char *const name[3], const data_array array[3],
                      const data_reading *how, data_qkv *out) {
  triple shape, turned;
  const bool has_v = array[2].rank > 0, other = how->layout == DATA_BHND;
  for (int i = 0; i < (has_v ? 3 : 2); i++)
    if (array[i].rank < 2)
      return attn_fail(ATTN_EINVAL, "%s: %s has %d axes; expected [n,d], %s", where, name[i], array[i].rank,
                       other ? "[heads,n,d] or [batch,heads,n,d]" : "[n,heads,d] or [batch,n,heads,d]");
  const char *why = misfit(array, how->layout, &shape);
  const bool few = !why && (how->limit > shape.q[2] || how->limit > shape.k[2]);
  if (few) why = "fewer positions than asked for";
  if (why) {
    char text[3][96], first[48] = "";
    const bool hint = !few && !misfit(array, other ? DATA_BNHD : DATA_BHND, &turned);
    for (int i = 0; i < 3; i++) array_print_shape(&array[i], text[i]);
    if (how->limit > 0) snprintf(first, sizeof first, ", first %" PRId64 " positions", how->limit);
    return attn_fail(few ? ATTN_EUNSUPPORTED : ATTN_EINVAL, "%s: %s %s, %s %s, %s %s%s: %s%s%s", where,
                     name[0], text[0], name[1], text[1], has_v ? name[2] : "no v", has_v ? text[2] : "",
                     first, why, hint ? "; they would fit in layout " : "",
                     hint ? data_layout_names[other] : "");
  }
  *out = (data_qkv){.batch = shape.q[0],
                    .heads = shape.q[1],
                    .kv_heads = shape.k[1],
                    .n_q = how->limit > 0 ? how->limit : shape.q[2],
                    .n_kv = how->limit > 0 ? how->limit : shape.k[2],
                    .d_qk = shape.q[3],
                    .d_v = has_v ? shape.v[3] : 0,
                    .rank = array[0].rank,
                    .layout = how->layout,
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

void qkv_copy(void *to, int64_t rows, const data_array *from, data_layout layout) {
  int64_t shape[4];
  widen(from, layout, shape);
  const int64_t heads = shape[1], n = shape[2];
  const size_t row = (size_t)shape[3] * attn_dtype_size(from->dtype), keep = (size_t)rows * row;
  for (int64_t line = 0; line < shape[0] * heads; line++) {
    char *at = (char *)to + (size_t)line * keep;
    const char *start = from->at;
    if (layout == DATA_BHND || from->rank < 3) {
      memcpy(at, start + (size_t)(line * n) * row, keep);
      continue;
    }
    start += (size_t)(line / heads * n * heads + line % heads) * row;
    for (int64_t i = 0; i < rows; i++) memcpy(at + (size_t)i * row, start + (size_t)(i * heads) * row, row);
  }
}

/* Matches the arrays, cuts them and moves them into *out. */
static attn_status from_arrays(const char *where, const char *const name[3], const data_array array[3],
                               const data_reading *how, char *description, data_qkv *out) {
  data_qkv made;
  if (!description) return ATTN_ENOMEM;
  attn_status status = qkv_match(where, name, array, how, &made);
  if (!status) status = qkv_alloc(&made);
  if (status) {
    free(description);
    return status;
  }
  qkv_copy(made.q, made.n_q, &array[0], how->layout);
  qkv_copy(made.k, made.n_kv, &array[1], how->layout);
  if (made.v) qkv_copy(made.v, made.n_kv, &array[2], how->layout);
  made.description = description;
  *out = made;
  return ATTN_OK;
}

static attn_status read_npy(const char *const path[3], const char *where, const char *const name[3],
                            const data_reading *how, char *description, data_qkv *out) {
  data_array array[3] = {{0}};
  attn_status status = ATTN_OK;
  for (int i = 0; i < 3 && !status; i++)
    if (path[i]) status = npy_read(path[i], how->bf16, &array[i]);
  if (!status)
    status = from_arrays(where, name, array, how, description, out);
  else
    free(description);
  for (int i = 0; i < 3; i++) data_array_free(&array[i]);
  return status;
}

static attn_status read_npz(const data_reading *how, data_qkv *out) {
  qkv_names names = {0};
  char *path[3] = {NULL};
  const size_t length = strlen(how->in);
  if (length < 5 || strcmp(how->in + length - 4, ".npz") != 0)
    return attn_fail(ATTN_EINVAL, "%s: a zip archive; one of arrays has a name that ends in .npz", how->in);
  attn_status status = qkv_names_parse(how->names, &names);
  for (int i = 0; i < 3 && !status; i++)
    if (!(path[i] = text_format("%s:%s", how->in, names.of[i]))) status = ATTN_ENOMEM;
  if (!status)
    status = read_npy((const char *const *)path, how->in, names.of, how, text_format("%s", how->in), out);
  for (int i = 0; i < 3; i++) free(path[i]);
  qkv_names_free(&names);
  return status;
}

attn_status data_qkv_read_safetensors(const data_reading *how, data_qkv *out) {
  const char *path = how->in;
  safetensors *file = NULL;
  qkv_names names = {0};
  data_array array[3] = {{0}};
  attn_status status = safetensors_open(path, &file);
  if (status) return status;
  status = qkv_names_parse(how->names, &names);
  for (int i = 0; i < 3 && !status; i++) {
    const tensor *t = safetensors_find(file, names.of[i]);
    status = t ? tensor_to_array(t, &array[i])
               : attn_fail(ATTN_EINVAL, "%s: no tensor %s; expected %s, %s and %s (--names)", path,
                           names.of[i], names.of[0], names.of[1], names.of[2]);
  }
  if (!status) status = from_arrays(path, names.of, array, how, text_format("%s", path), out);
  for (int i = 0; i < 3; i++) data_array_free(&array[i]);
  qkv_names_free(&names);
  safetensors_close(file);
  return status;
}

static attn_status read_tensors(const data_reading *how, data_qkv *out) {
  const char *path = how->in;
  file_map map = {0};
  if (!path) {
    const char *paths[] = {how->q, how->k, how->v};
    return read_npy(paths, "npy files", paths, how,
                    how->v ? text_format("%s, %s, %s", how->q, how->k, how->v)
                           : text_format("%s, %s", how->q, how->k),
                    out);
  }
  attn_status status = file_map_open(path, &map);
  if (status) return status;
  const bool hdf5 = file_begins(&map, "\x89HDF\r\n\x1a\n"), archive = zip_is(&map);
  /* A safetensors file is a length, then a JSON object. */
  const bool tensors = map.bytes > 8 && map.at[8] == '{', array = file_begins(&map, "\x93NUMPY");
  status = npz_refuse_pickle(path, &map, false);
  file_map_close(&map);
  if (status) return status;
  if (hdf5) return data_qkv_read_hdf5(how, out);
  if (archive) return read_npz(how, out);
  if (tensors) return data_qkv_read_safetensors(how, out);
  return attn_fail(ATTN_EINVAL, "%s: %s", path,
                   array ? "a single array, of q, k or v alone"
                         : "neither an HDF5 nor a safetensors nor an .npz file");
}

attn_status data_qkv_read(const data_reading *how, data_qkv *out) {
  data_qkv x = {0};
  attn_status status = read_tensors(how, &x);
  if (!status) status = qkv_read_extras(how, &x);
  if (!status)
    *out = x;
  else
    data_qkv_free(&x);
  return status;
}
