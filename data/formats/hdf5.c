/* hdf5.c - Q, K, V in HDF5 files: datasets q, k, v (or of other names) of floats of 2 bytes, which HDF5
 * widens itself, 4 or 8; or of bfloat16 as uint16. */
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/hdf5_input.h"
#include "data/formats/kinds.h"
#include "data/formats/qkv.h"
#include "data/formats/tensor.h"

enum { NAME_BYTES = 65536 }; /* of a model's name */

/* Whether every chunk was written, however small a filter makes it. */
static bool has_chunks(hid_t dataset, hid_t plist, hid_t space) {
  hsize_t dims[DATA_RANK_MAX], chunk[DATA_RANK_MAX], stored = 0, wanted = 1;
  const int rank = H5Sget_simple_extent_dims(space, dims, NULL);
  if (rank < 1 || H5Pget_chunk(plist, DATA_RANK_MAX, chunk) != rank ||
      H5Dget_num_chunks(dataset, space, &stored) < 0)
    return false;
  for (int i = 0; i < rank; i++) wanted *= dims[i] / chunk[i] + (dims[i] % chunk[i] > 0);
  return stored == wanted;
}

/* HDF5 would read external data from other files, and fill data that is missing with a fill value. */
static bool stored_here(hid_t dataset, hid_t space, size_t bytes) {
  hid_t plist = H5Dget_create_plist(dataset);
  if (plist < 0) return false;
  H5D_layout_t layout = H5Pget_layout(plist);
  bool here = layout == H5D_COMPACT || layout == H5D_CONTIGUOUS || layout == H5D_CHUNKED;
  here = here && H5Pget_external_count(plist) == 0;
  here = here && (H5Pget_nfilters(plist) > 0 ? has_chunks(dataset, plist, space)
                                             : H5Dget_storage_size(dataset) >= bytes);
  H5Pclose(plist);
  return here;
}

/* Opens a dataset and sets dtype, rank and shape of *about. */
static attn_status open_dataset(const char *path, hid_t file, const char *name, bool bf16, hid_t *out,
                                data_array *about) {
  attn_status status = ATTN_OK;
  hid_t dataset = -1, type = -1, space = -1;
  hsize_t dims[DATA_RANK_MAX];
  data_array made = {0};
  int64_t factors[DATA_RANK_MAX + 1];
  size_t bytes;
  if (H5Lexists(file, name, H5P_DEFAULT) <= 0 || (dataset = H5Dopen2(file, name, H5P_DEFAULT)) < 0)
    return attn_fail(ATTN_EINVAL, "%s: no dataset %s; expected three, q, k and v or as --names says", path,
                     name);
  type = H5Dget_type(dataset);
  space = H5Dget_space(dataset);
  size_t size = type < 0 ? 0 : H5Tget_size(type);
  const bool bare = bf16 && H5Tget_class(type) == H5T_INTEGER && size == 2;
  if (type < 0 || (!bare && H5Tget_class(type) != H5T_FLOAT) || (size != 2 && size != 4 && size != 8)) {
    status = attn_fail(ATTN_EINVAL, "%s: dataset %s: elements are not 2-, 4- or 8-byte floats%s", path, name,
                       size == 2 && !bf16 ? ", nor said to be bfloat16 (dtype bf16)" : "");
    goto out;
  }
  int rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
  if (rank < 2 || rank > DATA_RANK_MAX) {
    status =
        attn_fail(ATTN_EINVAL, "%s: dataset %s has %d axes; expected [n,d], [heads,n,d] or [batch,heads,n,d]",
                  path, name, rank);
    goto out;
  }
  H5Sget_simple_extent_dims(space, dims, NULL);
  made = (data_array){.dtype = size == 8 ? ATTN_F64 : ATTN_F32, .rank = rank};
  factors[0] = (int64_t)size;
  for (int i = 0; i < rank; i++) {
    if (dims[i] == 0 || dims[i] > INT64_MAX) {
      status = attn_fail(ATTN_EINVAL, "%s: dataset %s: axis %d has length %llu", path, name, i,
                         (unsigned long long)dims[i]);
      goto out;
    }
    factors[i + 1] = made.shape[i] = (int64_t)dims[i];
  }
  if (attn_size_product("bytes", factors, (size_t)rank + 1, &bytes)) {
    status = attn_fail(ATTN_EINVAL, "%s: dataset %s: the sizes of the shape overflow", path, name);
    goto out;
  }
  if (!stored_here(dataset, space, bytes)) {
    status = attn_fail(ATTN_EINVAL, "%s: dataset %s: data missing or stored externally", path, name);
    goto out;
  }
  *about = made;
  *out = dataset;
  dataset = -1;
out:
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  if (dataset >= 0) H5Dclose(dataset);
  return status;
}

/* The first n positions of every batch and head, in the layout of the file. */
static attn_status read_first(const char *path, const char *name, hid_t dataset, const data_array *about) {
  hsize_t start[DATA_RANK_MAX] = {0}, count[DATA_RANK_MAX];
  for (int i = 0; i < about->rank; i++) count[i] = (hsize_t)about->shape[i];
  hid_t stored = H5Dget_type(dataset), from = H5Dget_space(dataset);
  const bool bare = stored >= 0 && H5Tget_class(stored) == H5T_INTEGER;
  const bool sign = bare && H5Tget_sign(stored) == H5T_SGN_2; /* numbers above 2^15 are not to be cut off */
  hid_t type = bare                                 ? sign ? H5T_STD_I16LE : H5T_STD_U16LE
               : attn_dtype_size(about->dtype) == 8 ? H5T_NATIVE_DOUBLE
                                                    : H5T_NATIVE_FLOAT;
  hid_t memory = H5Screate_simple(about->rank, count, NULL);
  bool good = stored >= 0 && from >= 0 && memory >= 0 &&
              H5Sselect_hyperslab(from, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
              H5Dread(dataset, type, memory, from, H5P_DEFAULT, about->at) >= 0;
  /* Widened in place from the end: element i is read before its four bytes are written. */
  for (int64_t i = bare && good ? data_array_count(about) : 0; i-- > 0;) {
    uint8_t two[2];
    memcpy(two, (const uint8_t *)about->at + 2 * i, 2);
    tensor_bf16.widen(two, 1, (float *)about->at + i);
  }
  if (memory >= 0) H5Sclose(memory);
  if (from >= 0) H5Sclose(from);
  if (stored >= 0) H5Tclose(stored);
  return good ? ATTN_OK
              : attn_fail(ATTN_EINVAL, "%s: dataset %s cannot be read: the file is damaged", path, name);
}

/* Reads the first `rows` positions of a dataset as [batch, heads, rows, d]. */
static attn_status read_tensor(const char *path, const char *name, hid_t dataset, const data_array *whole,
                               data_layout layout, int64_t rows, void *to) {
  data_array part = *whole, own = {0};
  const bool turned = qkv_axis(whole, layout) != whole->rank - 2;
  attn_status status = ATTN_OK;
  part.shape[qkv_axis(whole, layout)] = rows;
  part.at = to;
  if (turned) {
    status = data_array_make(part.dtype, part.rank, part.shape, &own);
    part.at = own.at;
  }
  if (!status) status = read_first(path, name, dataset, &part);
  if (!status && turned) qkv_copy(to, rows, &part, layout);
  data_array_free(&own);
  return status;
}

/* Datasets of the names of extra tensors, if the file has them. */
static attn_status read_extras(const char *path, hid_t file, data_qkv *x) {
  attn_status status = ATTN_OK;
  for (int i = 0; !status && i < ATTN_EXTRA_KINDS; i++) {
    const char *name = attn_extra_kinds[i].name;
    data_array about = {0}, whole = {0};
    hid_t dataset = -1;
    if (H5Lexists(file, name, H5P_DEFAULT) <= 0) continue;
    status = open_dataset(path, file, name, false, &dataset, &about);
    if (!status) status = data_array_make(about.dtype, about.rank, about.shape, &whole);
    if (!status) status = read_first(path, name, dataset, &whole);
    if (!status) status = qkv_put_extra(path, i, &whole, x);
    data_array_free(&whole);
    if (dataset >= 0) H5Dclose(dataset);
  }
  return status;
}

/* Whether a capture says that its layer's scores are not q k / sqrt(d) of all keys before. */
static bool has_scores(hid_t file) {
  return H5Aexists(file, "score_scale") > 0 || H5Aexists(file, "score_softcap") > 0 ||
         H5Aexists(file, "score_sinks") > 0 || H5Aexists(file, "sliding_window") > 0;
}

static attn_status read_qkv(const data_reading *how, data_qkv *out) {
  const char *path = how->in;
  hid_t file = -1, dataset[3] = {-1, -1, -1};
  data_array about[3] = {{0}};
  data_qkv made = {0};
  qkv_names names = {0};
  const hdf5_quiet before = hdf5_quiet_begin();
  attn_status status = qkv_names_parse(how->names, &names);
  if (!status) status = hdf5_input_open(path, &file);
  if (!status && hdf5_has_text(file, "rope", "pending"))
    status = attn_fail(ATTN_EUNSUPPORTED,
                       "%s: q and k lack their rotary embedding (rope=pending), and no variant rotates them",
                       path);
  for (int i = 0; !status && i < 3; i++)
    status = open_dataset(path, file, names.of[i], how->bf16, &dataset[i], &about[i]);
  if (status) goto out;
  status = qkv_match(path, names.of, about, how, &made);
  if (status) goto out;
  status = qkv_alloc(&made);
  if (status) goto out;
  void *to[3] = {made.q, made.k, made.v};
  for (int i = 0; !status && i < 3; i++)
    status = read_tensor(path, names.of[i], dataset[i], &about[i], how->layout, i == 0 ? made.n_q : made.n_kv,
                         to[i]);
  if (!status) status = read_extras(path, file, &made);
  if (status) goto out;
  made.scored = has_scores(file);
  made.description = text_format("%s", path);
  if (!made.description) {
    status = ATTN_ENOMEM;
    goto out;
  }
  *out = made;
  made = (data_qkv){0};
out:
  for (int i = 0; i < 3; i++)
    if (dataset[i] >= 0) H5Dclose(dataset[i]);
  if (file >= 0) H5Fclose(file);
  hdf5_quiet_end(before);
  qkv_names_free(&names);
  data_qkv_free(&made);
  return status;
}

static attn_status try_qkv(const char *path, void *how) {
  data_qkv x;
  (void)path;
  const attn_status status = read_qkv(how, &x);
  if (!status) data_qkv_free(&x);
  return status;
}

attn_status data_qkv_read_hdf5(const data_reading *how, data_qkv *out) {
  data_reading copy = *how;
  const attn_status status = hdf5_input_try(how->in, try_qkv, &copy);
  return status ? status : read_qkv(how, out);
}

/* ---- captures ------------------------------------------------------------------------------------------ */

static bool is_capture(const char *path, const file_map *content) {
  return hdf5_input_is(path, content, "model_sha256", NULL);
}

const output_kind kind_capture = {"a capture", is_capture};

typedef struct capture {
  const data_qkv *x;
  const hdf5_attribute *attribute;
  size_t count;
} capture;

static bool fill_capture(hid_t file, const void *context) {
  static const char *const names[3] = {"q", "k", "v"};
  const capture *c = context;
  const data_qkv *x = c->x;
  const bool wide = attn_dtype_size(x->dtype) == 8;
  const hsize_t dims[3][3] = {{(hsize_t)x->heads, (hsize_t)x->n_q, (hsize_t)x->d_qk},
                              {(hsize_t)x->kv_heads, (hsize_t)x->n_kv, (hsize_t)x->d_qk},
                              {(hsize_t)x->kv_heads, (hsize_t)x->n_kv, (hsize_t)x->d_v}};
  const void *const at[3] = {x->q, x->k, x->v};
  bool good = true;
  for (int i = 0; good && i < 3; i++)
    good = hdf5_write_dataset(file, names[i], 3, dims[i], wide ? H5T_IEEE_F64LE : H5T_IEEE_F32LE,
                              wide ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT, at[i]);
  for (size_t i = 0; good && i < c->count; i++) good = hdf5_write_attribute(file, &c->attribute[i]);
  return good;
}

attn_status hdf5_write_qkv(const char *path, const data_qkv *x, const hdf5_attribute *attribute,
                           size_t count) {
  return hdf5_write(path, &kind_capture, fill_capture, &(capture){x, attribute, count});
}

static attn_status read_origin(const char *path, char **out) {
  hid_t file = -1, model = -1, layer = -1, type = -1;
  int64_t number = 0;
  char *text = NULL, *made = NULL;
  const hdf5_quiet before = hdf5_quiet_begin();
  attn_status status = hdf5_input_open(path, &file);
  if (status) goto out;
  model = hdf5_open_scalar(file, "model");
  layer = hdf5_open_scalar(file, "layer");
  type = model < 0 ? -1 : H5Aget_type(model);
  bool good = layer >= 0 && H5Aread(layer, H5T_NATIVE_INT64, &number) >= 0 && type >= 0 &&
              H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 &&
              H5Tget_size(type) < NAME_BYTES;
  text = good ? calloc(1, H5Tget_size(type) + 1) : NULL;
  if (!text || H5Aread(model, type, text) < 0) {
    status = attn_fail(ATTN_EINVAL, "%s: not a capture: it lacks the attributes model and layer", path);
    goto out;
  }
  made = text_format("%s layer %lld", text, (long long)number);
  if (made)
    *out = made;
  else
    status = ATTN_ENOMEM;
out:
  free(text);
  if (type >= 0) H5Tclose(type);
  if (layer >= 0) H5Aclose(layer);
  if (model >= 0) H5Aclose(model);
  if (file >= 0) H5Fclose(file);
  hdf5_quiet_end(before);
  return status;
}

static attn_status try_origin(const char *path, void *unused) {
  char *text = NULL;
  (void)unused;
  const attn_status status = read_origin(path, &text);
  free(text);
  return status;
}

attn_status hdf5_read_origin(const char *path, char **out) {
  const attn_status status = hdf5_input_try(path, try_origin, NULL);
  return status ? status : read_origin(path, out);
}
