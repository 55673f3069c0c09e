/* from_file.c - datasets from files. The keys are the first n_kv positions; the queries are the last n_q of
 * those where the file holds as many queries as keys (query i of attn.h stands at position i + n_kv - n_q),
 * else its first n_q. */
#include "data/sources/sources.h"

#include <stdlib.h>
#include <string.h>

#include "data/formats/qkv.h"

/* Refuses a number that differs from that of the request. */
static attn_status same(const char *source, const char *what, int64_t here, int64_t wanted) {
  if (here == wanted) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED,
                   "dataset %s: the file has %s=%lld, not %lld: set grid.%s to that, or leave it out", source,
                   what, (long long)here, (long long)wanted, what);
}

static data_request sizes_of(const data_qkv *x) {
  return (data_request){.batch = x->batch,
                        .heads = x->heads,
                        .kv_heads = x->kv_heads,
                        .n_q = x->n_q,
                        .n_kv = x->n_kv,
                        .d_qk = x->d_qk,
                        .d_v = x->d_v,
                        .dtype = x->dtype};
}

attn_status data_sizes_fit(const char *source, const data_request *file, const data_request *r) {
  attn_status status = same(source, "batch", file->batch, r->batch);
  if (!status) status = same(source, "heads", file->heads, r->heads);
  if (!status) status = same(source, "kv_heads", file->kv_heads, r->kv_heads);
  if (!status) status = same(source, "d", file->d_qk, r->d_qk);
  if (!status) status = same(source, "d_v", file->d_v, r->d_v);
  if (status || (r->n_q <= file->n_q && r->n_kv <= file->n_kv)) return status;
  return attn_fail(
      ATTN_EUNSUPPORTED, "dataset %s: the file has %lld queries and %lld keys; %lld and %lld were asked for",
      source, (long long)file->n_q, (long long)file->n_kv, (long long)r->n_q, (long long)r->n_kv);
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
  const data_request file = sizes_of(x);
  attn_status status = data_sizes_fit(source, &file, r);
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
  memset(made.extra, 0, sizeof made.extra);
  status = qkv_alloc(&made);
  if (status) goto out;
  int64_t first = x->n_q == x->n_kv && r->n_kv > r->n_q ? r->n_kv - r->n_q : 0;
  copy_rows(made.q, x->q, x->batch * x->heads, x->n_q, first, r->n_q, x->d_qk, r->dtype);
  copy_rows(made.k, x->k, x->batch * x->kv_heads, x->n_kv, 0, r->n_kv, x->d_qk, r->dtype);
  copy_rows(made.v, x->v, x->batch * x->kv_heads, x->n_kv, 0, r->n_kv, x->d_v, r->dtype);
  made.description = x->description;
  x->description = NULL;
  memcpy(made.extra, x->extra, sizeof made.extra);
  memset(x->extra, 0, sizeof x->extra);
  qkv_cut_extras(&made, first);
  *out = made;
out:
  data_qkv_free(x);
  return status;
}

static attn_status need(const char *source, const char *parameter, const char *value) {
  if (*value) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "dataset %s: parameter %s=PATH is missing", source, parameter);
}

/* What is read, and how; params of every source here. */
typedef struct from_file {
  const char *file, *names, *q, *k, *v;
  int layout, dtype;
} from_file;

static const char *const dtypes[] = {"file", "bf16", NULL};

#define FILE_PARAM \
  { "file", ATTN_TEXT, offsetof(from_file, file), 0, 0, "", NULL, "path of the file (required)" }
#define NAMES_PARAM                                                            \
  {                                                                            \
    "names", ATTN_TEXT, offsetof(from_file, names), 0, 0, "", NULL,            \
        "what the tensors are called, such as query+key+value; empty: q, k, v" \
  }
#define LAYOUT_PARAM                                                                             \
  {                                                                                              \
    "layout", ATTN_CHOICE, offsetof(from_file, layout), 0, 0, "bhnd", data_layout_names,         \
        "axes of the arrays: [batch, heads, n, d] or [batch, n, heads, d], or the last of these" \
  }
#define DTYPE_PARAM                                                                         \
  {                                                                                         \
    "dtype", ATTN_CHOICE, offsetof(from_file, dtype), 0, 0, "file", dtypes,                 \
        "bf16: elements of two bytes without a type of their own (V2, uint16) are bfloat16" \
  }

static data_reading reading_of(const from_file *p) {
  const data_reading from = {.in = p->file,
                             .q = p->q,
                             .k = p->k,
                             .v = p->v,
                             .names = p->names,
                             .layout = (data_layout)p->layout,
                             .bf16 = p->dtype == 1};
  return from;
}

static int64_t longest(const data_request *r) { return r->n_q > r->n_kv ? r->n_q : r->n_kv; }

/* -- hdf5 -- */

static attn_status hdf5_generate(const void *params, const data_request *r, data_qkv *out) {
  const data_reading from = reading_of(params);
  data_qkv x = {0};
  attn_status status = need("hdf5", "file", from.in);
  if (!status) status = data_qkv_read_hdf5(&from, &x);
  return status ? status : fit("hdf5", &x, r, out);
}

static const attn_param hdf5_params[] = {FILE_PARAM, NAMES_PARAM, LAYOUT_PARAM, DTYPE_PARAM, {0}};

const data_source source_hdf5 = {"hdf5",      "datasets q, k, v of an HDF5 file",
                                 hdf5_params, sizeof(from_file),
                                 false,       hdf5_generate,
                                 "names",     1,
                                 NULL};

/* -- captured -- */

static attn_status captured_generate(const void *params, const data_request *r, data_qkv *out) {
  data_reading from = reading_of(params);
  char *origin = NULL;
  data_qkv x = {0}, made = {0};
  attn_status status = need("captured", "file", from.in);
  if (!status) status = hdf5_read_origin(from.in, &origin);
  /* A capture has one position for each token, so the longer side is enough. */
  from.limit = longest(r);
  if (!status) status = data_qkv_read_hdf5(&from, &x);
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

static const attn_param captured_params[] = {FILE_PARAM, {0}};

const data_source source_captured = {"captured",
                                     "queries, keys and values of a trained model, by attnlab capture",
                                     captured_params,
                                     sizeof(from_file),
                                     false,
                                     captured_generate,
                                     NULL,
                                     0,
                                     NULL};

/* -- safetensors -- */

static attn_status safetensors_generate(const void *params, const data_request *r, data_qkv *out) {
  const data_reading from = reading_of(params);
  data_qkv x = {0};
  attn_status status = need("safetensors", "file", from.in);
  if (!status) status = data_qkv_read_safetensors(&from, &x);
  return status ? status : fit("safetensors", &x, r, out);
}

static const attn_param safetensors_params[] = {FILE_PARAM, NAMES_PARAM, LAYOUT_PARAM, {0}};

const data_source source_safetensors = {"safetensors",
                                        "tensors q, k, v of a safetensors file",
                                        safetensors_params,
                                        sizeof(from_file),
                                        false,
                                        safetensors_generate,
                                        "names",
                                        1,
                                        NULL};

/* -- npy -- */

static attn_status read_npy(const data_reading *from, data_qkv *x) {
  attn_status status = need("npy", "q", from->q);
  if (!status) status = need("npy", "k", from->k);
  if (!status) status = need("npy", "v", from->v);
  return status ? status : data_qkv_read(from, x);
}

static attn_status npy_generate(const void *params, const data_request *r, data_qkv *out) {
  const data_reading from = reading_of(params);
  data_qkv x = {0};
  const attn_status status = read_npy(&from, &x);
  return status ? status : fit("npy", &x, r, out);
}

#define ONE_OF_NPY(name, whose)                                                                     \
  {                                                                                                 \
#name, ATTN_TEXT, offsetof(from_file, name), 0, 0, "", NULL,                                    \
        "path of the " whose " .npy file, or of an array in an archive, x.npz:" #name " (required)" \
  }

static const attn_param npy_params[] = {ONE_OF_NPY(q, "queries'"),
                                        ONE_OF_NPY(k, "keys'"),
                                        ONE_OF_NPY(v, "values'"),
                                        LAYOUT_PARAM,
                                        DTYPE_PARAM,
                                        {0}};

const data_source source_npy = {"npy",      "three arrays in .npy files or .npz archives",
                                npy_params, sizeof(from_file),
                                false,      npy_generate,
                                NULL,       3,
                                NULL};

/* -- sizes -- */

attn_status from_file_sizes(const data_source *source, const void *params, data_request *out, bool *known) {
  const bool npy = source == &source_npy, tensors = source == &source_safetensors;
  *known = npy || tensors || source == &source_hdf5 || source == &source_captured;
  if (!*known) return ATTN_OK;
  const data_reading from = reading_of(params);
  data_qkv x = {0};
  attn_status status = npy ? ATTN_OK : need(source->name, "file", from.in);
  if (!status)
    status = (npy ? read_npy : tensors ? data_qkv_read_safetensors : data_qkv_read_hdf5)(&from, &x);
  if (status) return status;
  *out = sizes_of(&x);
  data_qkv_free(&x);
  return ATTN_OK;
}
