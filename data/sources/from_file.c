/* from_file.c - datasets from files. The keys are the first n_kv positions; the queries are the last n_q of
 * those where the file holds as many queries as keys (query i of attn.h stands at position i + n_kv - n_q),
 * else its first n_q. */
#include "data/sources/sources.h"

#include <stdlib.h>
#include <string.h>

#include "data/formats/qkv.h"
#include "data/support/file.h"

/* Refuses a number that differs from that of the request. */
static attn_status same(const char *source, const char *what, int64_t here, int64_t wanted) {
  if (here == wanted) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "dataset %s: the file has %s=%lld, not %lld", source, what,
                   (long long)here, (long long)wanted);
}

/* Copies `count` rows of d elements from row `first` of every head. */
static void copy_rows(void *to, const void *from, int64_t heads, int64_t n, int64_t first, int64_t count,
                      int64_t d, attn_dtype dtype) {
  size_t row = (size_t)d * attn_dtype_size(dtype);
  for (int64_t h = 0; h < heads; h++)
    memcpy((char *)to + (size_t)(h * count) * row, (const char *)from + (size_t)(h * n + first) * row,
           (size_t)count * row);
}

/* Converts *x, the content of a file, into the tensors of a request. Frees x. */
static attn_status fit(const char *source, data_qkv *x, const data_request *r, data_qkv *out) {
  data_qkv made = {0};
  attn_status status = same(source, "batch", x->batch, r->batch);
  if (!status) status = same(source, "heads", x->heads, r->heads);
  if (!status) status = same(source, "kv_heads", x->kv_heads, r->kv_heads);
  if (!status) status = same(source, "d_qk", x->d_qk, r->d_qk);
  if (!status) status = same(source, "d_v", x->d_v, r->d_v);
  if (!status && (r->n_q > x->n_q || r->n_kv > x->n_kv))
    status = attn_fail(ATTN_EUNSUPPORTED,
                       "dataset %s: the file has %lld queries and %lld keys; %lld and %lld were asked for",
                       source, (long long)x->n_q, (long long)x->n_kv, (long long)r->n_q, (long long)r->n_kv);
  if (!status) status = data_qkv_convert(x, r->dtype);
  if (status) goto out;
  if (r->n_q == x->n_q && r->n_kv == x->n_kv) {
    *out = *x;
    *x = (data_qkv){0};
    goto out;
  }
  made = *x;
  made.n_q = r->n_q;
  made.n_kv = r->n_kv;
  made.q = made.k = made.v = NULL;
  made.description = NULL;
  status = qkv_alloc(&made);
  if (status) goto out;
  int64_t first = x->n_q == x->n_kv && r->n_kv > r->n_q ? r->n_kv - r->n_q : 0;
  copy_rows(made.q, x->q, x->batch * x->heads, x->n_q, first, r->n_q, x->d_qk, r->dtype);
  copy_rows(made.k, x->k, x->batch * x->kv_heads, x->n_kv, 0, r->n_kv, x->d_qk, r->dtype);
  copy_rows(made.v, x->v, x->batch * x->kv_heads, x->n_kv, 0, r->n_kv, x->d_v, r->dtype);
  made.description = x->description;
  x->description = NULL;
  *out = made;
out:
  data_qkv_free(x);
  return status;
}

static attn_status need(const char *source, const char *parameter, const char *value) {
  if (*value) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "dataset %s: parameter %s=PATH is missing", source, parameter);
}

typedef struct one_file {
  const char *file;
} one_file;

static const attn_param file_params[] = {
    {"file", ATTN_TEXT, offsetof(one_file, file), 0, 0, "", NULL, "path of the file (required)"}, {0}};

static int64_t longest(const data_request *r) { return r->n_q > r->n_kv ? r->n_q : r->n_kv; }

/* -- hdf5 -- */

static attn_status hdf5_generate(const void *params, const data_request *r, data_qkv *out) {
  const char *path = ((const one_file *)params)->file;
  data_qkv x = {0};
  attn_status status = need("hdf5", "file", path);
  if (!status) status = data_qkv_read_hdf5(path, 0, &x);
  return status ? status : fit("hdf5", &x, r, out);
}

const data_source source_hdf5 = {
    "hdf5", "root datasets q, k, v of an HDF5 file", file_params, sizeof(one_file), false, hdf5_generate};

/* -- captured -- */

static attn_status captured_generate(const void *params, const data_request *r, data_qkv *out) {
  const char *path = ((const one_file *)params)->file;
  char *origin = NULL;
  data_qkv x = {0}, made = {0};
  attn_status status = need("captured", "file", path);
  if (!status) status = hdf5_read_origin(path, &origin);
  /* A capture has one position for each token, so the longer side is enough. */
  if (!status) status = data_qkv_read_hdf5(path, longest(r), &x);
  if (!status) status = fit("captured", &x, r, &made);
  if (status) goto out;
  free(made.description);
  made.description = origin;
  origin = NULL;
  *out = made;
out:
  free(origin);
  return status;
}

const data_source source_captured = {
    "captured",  "queries, keys and values of a trained model, by attnlab capture",
    file_params, sizeof(one_file),
    false,       captured_generate};

/* -- safetensors -- */

static attn_status safetensors_generate(const void *params, const data_request *r, data_qkv *out) {
  const char *path = ((const one_file *)params)->file;
  data_qkv x = {0};
  attn_status status = need("safetensors", "file", path);
  if (!status) status = data_qkv_read_safetensors(path, 0, &x);
  return status ? status : fit("safetensors", &x, r, out);
}

const data_source source_safetensors = {"safetensors", "tensors q, k, v of a safetensors file",
                                        file_params,   sizeof(one_file),
                                        false,         safetensors_generate};

/* -- npy -- */

typedef struct three_files {
  const char *q, *k, *v;
} three_files;

static const attn_param npy_params[] = {
    {"q", ATTN_TEXT, offsetof(three_files, q), 0, 0, "", NULL, "path of the queries' .npy file (required)"},
    {"k", ATTN_TEXT, offsetof(three_files, k), 0, 0, "", NULL, "path of the keys' .npy file (required)"},
    {"v", ATTN_TEXT, offsetof(three_files, v), 0, 0, "", NULL, "path of the values' .npy file (required)"},
    {0}};

static attn_status npy_generate(const void *params, const data_request *r, data_qkv *out) {
  const three_files *p = params;
  data_qkv x = {0};
  attn_status status = need("npy", "q", p->q);
  if (!status) status = need("npy", "k", p->k);
  if (!status) status = need("npy", "v", p->v);
  if (!status) status = data_qkv_read_npy(p->q, p->k, p->v, 0, &x);
  return status ? status : fit("npy", &x, r, out);
}

const data_source source_npy = {"npy", "three .npy files", npy_params, sizeof(three_files),
                                false, npy_generate};
