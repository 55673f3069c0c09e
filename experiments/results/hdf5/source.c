/* source.c - checked reading of HDF5 variables and attributes. */
#include "experiments/results/hdf5/source.h"

#include <stdlib.h>
#include <string.h>

static attn_status wrong(const h5_source *s, const char *variable, const char *problem) {
  return attn_fail(ATTN_EINVAL, "%s: %s%s: %s", s->path, s->name, variable, problem);
}

static attn_status no_memory(const h5_source *s, const char *variable) {
  return attn_fail(ATTN_ENOMEM, "%s: %s%s: out of memory", s->path, s->name, variable);
}

bool h5_next_rows(h5_source *s, size_t of) {
  enum { PIECE = 1024 };
  s->first += s->rows;
  s->of = of;
  s->rows = of - s->first < PIECE ? of - s->first : PIECE;
  return s->rows > 0;
}

bool h5_has(const h5_source *s, const char *variable) {
  return H5Lexists(s->group, variable, H5P_DEFAULT) > 0;
}

bool h5_is_text(const h5_source *s, const char *variable) {
  const hid_t id = h5_has(s, variable) ? H5Dopen2(s->group, variable, H5P_DEFAULT) : -1;
  const hid_t type = id >= 0 ? H5Dget_type(id) : -1;
  const bool is = type >= 0 && H5Tget_class(type) == H5T_STRING;
  if (type >= 0) H5Tclose(type);
  if (id >= 0) H5Dclose(id);
  return is;
}

static attn_status open_variable(const h5_source *s, const char *variable, hid_t *out) {
  if (!h5_has(s, variable))
    return attn_fail(ATTN_ENOTFOUND, "%s: %s%s is missing", s->path, s->name, variable);
  hid_t id = H5Dopen2(s->group, variable, H5P_DEFAULT);
  if (id < 0) return wrong(s, variable, "not a readable dataset");
  *out = id;
  return ATTN_OK;
}

static attn_status lengths_of(const h5_source *s, const char *variable, hid_t id, int rank, size_t *lengths) {
  hsize_t found[H5S_MAX_RANK];
  hid_t space = H5Dget_space(id);
  bool good = space >= 0 && H5Sget_simple_extent_ndims(space) == rank &&
              H5Sget_simple_extent_dims(space, found, NULL) == rank;
  if (space >= 0) H5Sclose(space);
  if (!good)
    return attn_fail(ATTN_EINVAL, "%s: %s%s: expected %d dimension%s", s->path, s->name, variable, rank,
                     rank == 1 ? "" : "s");
  for (int i = 0; i < rank; i++) lengths[i] = (size_t)found[i];
  return ATTN_OK;
}

attn_status h5_lengths(const h5_source *s, const char *variable, int rank, size_t *lengths) {
  hid_t id = H5I_INVALID_HID;
  attn_status status = open_variable(s, variable, &id);
  if (status) return status;
  status = lengths_of(s, variable, id, rank, lengths);
  H5Dclose(id);
  return status;
}

/* Reads all of a variable, or the rows that are wanted of it. */
static bool read_elements(const h5_source *s, hid_t id, hid_t memory, size_t count, void *data) {
  if (!count) return true;
  if (!s->rows) return H5Dread(id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
  hsize_t dims[H5S_MAX_RANK], start[H5S_MAX_RANK] = {s->first};
  const hid_t file = H5Dget_space(id);
  const int rank = file >= 0 ? H5Sget_simple_extent_dims(file, dims, NULL) : -1;
  dims[0] = s->rows;
  /* Of the same shape, which HDF5 copies by chunks: of another it would go from element to element. */
  const hid_t own = rank > 0 ? H5Screate_simple(rank, dims, NULL) : -1;
  const bool good = own >= 0 && H5Sselect_hyperslab(file, H5S_SELECT_SET, start, NULL, dims, NULL) >= 0 &&
                    H5Dread(id, memory, own, file, H5P_DEFAULT, data) >= 0;
  if (file >= 0) H5Sclose(file);
  if (own >= 0) H5Sclose(own);
  return good;
}

/* Takes over what HDF5 allocated, so that free releases each text. */
static attn_status read_texts(const h5_source *s, const char *variable, hid_t id, size_t count,
                              char **texts) {
  attn_status status = ATTN_OK;
  const hsize_t total = count;
  hid_t stored = H5Dget_type(id), space = H5Screate_simple(1, &total, NULL), type = H5Tcopy(H5T_C_S1);
  if (stored < 0 || H5Tget_class(stored) != H5T_STRING || H5Tis_variable_str(stored) <= 0) {
    status = wrong(s, variable, "expected strings of variable length");
    goto out;
  }
  char **raw = calloc(count + 1, sizeof *raw);
  if (!raw) {
    status = no_memory(s, variable);
    goto out;
  }
  if (type < 0 || space < 0 || H5Tset_size(type, H5T_VARIABLE) < 0 ||
      H5Tset_cset(type, H5Tget_cset(stored)) < 0 || !read_elements(s, id, type, count, raw))
    status = wrong(s, variable, "cannot be read");
  for (size_t i = 0; !status && i < count; i++)
    if (!(texts[i] = strdup(raw[i] ? raw[i] : ""))) status = no_memory(s, variable);
  H5Dvlen_reclaim(type, space, H5P_DEFAULT, raw);
  free(raw);
out:
  if (stored >= 0) H5Tclose(stored);
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  return status;
}

static attn_status read_numbers(const h5_source *s, const char *variable, hid_t id, hid_t memory,
                                size_t count, void *data) {
  hid_t stored = H5Dget_type(id);
  H5T_class_t class = stored < 0 ? H5T_NO_CLASS : H5Tget_class(stored);
  if (stored >= 0) H5Tclose(stored);
  if (class != H5T_INTEGER && class != H5T_FLOAT) return wrong(s, variable, "expected numbers");
  if (!read_elements(s, id, memory, count, data)) return wrong(s, variable, "cannot be read");
  return ATTN_OK;
}

/* Opens a variable of these lengths and makes an array of `size` bytes for each of its elements. */
static attn_status prepare(const h5_source *s, const char *variable, int rank, const size_t *lengths,
                           size_t size, hid_t *id, size_t *count, void **array) {
  size_t found[3] = {0, 1, 1}, bytes;
  hid_t open = -1;
  attn_status status = open_variable(s, variable, &open);
  if (status) return status;
  if ((status = lengths_of(s, variable, open, rank, found))) goto out;
  for (int i = 0; i < rank; i++) {
    const size_t expected = i == 0 && s->rows ? s->of : lengths[i];
    if (found[i] != expected) {
      status = attn_fail(ATTN_EINVAL, "%s: %s%s has length %zu, expected %zu", s->path, s->name, variable,
                         found[i], expected);
      goto out;
    }
  }
  found[0] = lengths[0];
  const int64_t factors[] = {(int64_t)found[0], (int64_t)found[1], (int64_t)found[2], (int64_t)size};
  if ((status = attn_size_product(variable, factors, 4, &bytes))) goto out;
  if (!(*array = calloc(1, bytes + size))) {
    status = no_memory(s, variable);
    goto out;
  }
  *count = found[0] * found[1] * found[2];
  *id = open;
  return ATTN_OK;
out:
  H5Dclose(open);
  return status;
}

static attn_status numbers(const h5_source *s, const char *variable, int rank, const size_t *lengths,
                           hid_t memory, void **out) {
  void *array = NULL;
  size_t count;
  hid_t id;
  attn_status status = prepare(s, variable, rank, lengths, H5Tget_size(memory), &id, &count, &array);
  if (status) return status;
  status = read_numbers(s, variable, id, memory, count, array);
  if (status)
    free(array);
  else
    *out = array;
  H5Dclose(id);
  return status;
}

#define READ(name, type, memory)                                                                            \
  attn_status name(const h5_source *s, const char *variable, int rank, const size_t *lengths, type **out) { \
    void *array;                                                                                            \
    const attn_status status = numbers(s, variable, rank, lengths, memory, &array);                         \
    if (!status) *out = array;                                                                              \
    return status;                                                                                          \
  }

READ(h5_read_f64, double, H5T_NATIVE_DOUBLE)
READ(h5_read_f32, float, H5T_NATIVE_FLOAT)
READ(h5_read_i64, int64_t, H5T_NATIVE_INT64)
READ(h5_read_i32, int32_t, H5T_NATIVE_INT32)
#undef READ

attn_status h5_read_texts(const h5_source *s, const char *variable, int rank, const size_t *lengths,
                          char ***out) {
  void *array = NULL;
  size_t count;
  hid_t id;
  attn_status status = prepare(s, variable, rank, lengths, sizeof(char *), &id, &count, &array);
  if (status) return status;
  status = read_texts(s, variable, id, count, array);
  if (status)
    h5_texts_free(array, count);
  else
    *out = array;
  H5Dclose(id);
  return status;
}

void h5_texts_free(char **texts, size_t count) {
  for (size_t i = 0; texts && i < count; i++) free(texts[i]);
  free(texts);
}

/* ---- columns ------------------------------------------------------------------------------------------- */

static attn_status column_texts(const h5_source *s, const result_column *c, int rank, const size_t *lengths,
                                size_t count, char *records, size_t stride) {
  char **texts = NULL;
  attn_status status = h5_read_texts(s, c->name, rank, lengths, &texts);
  if (status) return status;
  for (size_t i = 0; !status && i < count; i++) {
    status = result_column_set_text(records + i * stride, c, texts[i]);
    if (status == ATTN_EINVAL)
      attn_fail(status, "%s: %s%s: '%s' in run %zu is none of its names", s->path, s->name, c->name, texts[i],
                s->first + i / (count / lengths[0]));
  }
  h5_texts_free(texts, count);
  return status;
}

static attn_status out_of_range(const h5_source *s, const result_column *c, double x, size_t run,
                                const char *expected) {
  return attn_fail(ATTN_EINVAL, "%s: %s%s: %.16g in run %zu; expected %s", s->path, s->name, c->name, x, run,
                   expected);
}

/* Flags, truth values and ranges are checked. */
static attn_status column_integers(const h5_source *s, const result_column *c, int rank,
                                   const size_t *lengths, size_t count, char *records, size_t stride) {
  char expected[COLUMN_RANGE];
  int64_t *x = NULL, limit = INT64_MAX;
  attn_status status = h5_read_i64(s, c->name, rank, lengths, &x);
  if (c->type == COLUMN_BOOL) limit = 2;
  if (c->type == COLUMN_FLAG)
    for (limit = 0; c->flags[limit];) limit++;
  for (size_t i = 0; !status && i < count; i++) {
    if (limit < INT64_MAX && (x[i] < 0 || x[i] >= limit))
      status = attn_fail(ATTN_EINVAL, "%s: %s%s: %lld in run %zu is none of its flags", s->path, s->name,
                         c->name, (long long)x[i], s->first + i / (count / lengths[0]));
    else if (!result_column_allows(c, (double)x[i], expected))
      status = out_of_range(s, c, (double)x[i], s->first + i / (count / lengths[0]), expected);
    else
      result_column_set_int(records + i * stride, c, x[i]);
  }
  free(x);
  return status;
}

attn_status h5_column_read(const h5_source *s, const result_column *c, int rank, const size_t *lengths,
                           void *records, size_t stride) {
  const size_t count = lengths[0] * (rank > 1 ? lengths[1] : 1);
  char expected[COLUMN_RANGE];
  double *x = NULL;
  if (!h5_has(s, c->name)) return ATTN_OK;
  if (c->type == COLUMN_TEXT) return column_texts(s, c, rank, lengths, count, records, stride);
  if (c->type != COLUMN_F64) return column_integers(s, c, rank, lengths, count, records, stride);
  attn_status status = h5_read_f64(s, c->name, rank, lengths, &x);
  for (size_t i = 0; !status && i < count; i++) {
    if (!result_column_allows(c, x[i], expected))
      status = out_of_range(s, c, x[i], s->first + i / (count / lengths[0]), expected);
    result_column_set_f64((char *)records + i * stride, c, x[i]);
  }
  free(x);
  return status;
}

/* ---- attributes and members ---------------------------------------------------------------------------- */

static attn_status read_attribute(const h5_source *s, const char *attribute, H5T_class_t class, hid_t memory,
                                  void *out) {
  if (H5Aexists(s->group, attribute) <= 0) return wrong(s, attribute, "the attribute is missing");
  hid_t id = H5Aopen(s->group, attribute, H5P_DEFAULT), type = -1, space = -1;
  bool good = id >= 0 && (type = H5Aget_type(id)) >= 0 && (space = H5Aget_space(id)) >= 0 &&
              H5Sget_simple_extent_npoints(space) == 1 && H5Tget_class(type) == class &&
              H5Tis_variable_str(type) <= 0;
  if (good && class == H5T_STRING) good = H5Tset_cset(memory, H5Tget_cset(type)) >= 0;
  good = good && H5Aread(id, memory, out) >= 0;
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  if (id >= 0) H5Aclose(id);
  return good ? ATTN_OK : wrong(s, attribute, "the attribute has another type");
}

attn_status h5_read_attribute_text(const h5_source *s, const char *attribute, char *out, size_t size) {
  hid_t memory = H5Tcopy(H5T_C_S1);
  attn_status status = memory >= 0 && H5Tset_size(memory, size) >= 0
                           ? read_attribute(s, attribute, H5T_STRING, memory, out)
                           : wrong(s, attribute, "cannot be read");
  if (memory >= 0) H5Tclose(memory);
  return status;
}

attn_status h5_read_attribute_int(const h5_source *s, const char *attribute, int64_t *out) {
  return read_attribute(s, attribute, H5T_INTEGER, H5T_NATIVE_INT64, out);
}

attn_status h5_members(const h5_source *s, char ***names, size_t *count) {
  H5G_info_t about;
  if (H5Gget_info(s->group, &about) < 0) return wrong(s, "", "cannot be listed");
  size_t total = (size_t)about.nlinks;
  char **list = calloc(total + 1, sizeof *list);
  if (!list) return no_memory(s, "");
  for (size_t i = 0; i < total; i++) {
    ssize_t length = H5Lget_name_by_idx(s->group, ".", H5_INDEX_NAME, H5_ITER_INC, i, NULL, 0, H5P_DEFAULT);
    if (length >= 0) list[i] = calloc((size_t)length + 1, 1);
    if (!list[i] || H5Lget_name_by_idx(s->group, ".", H5_INDEX_NAME, H5_ITER_INC, i, list[i],
                                       (size_t)length + 1, H5P_DEFAULT) < 0) {
      h5_texts_free(list, total);
      return wrong(s, "", "cannot be listed");
    }
  }
  *names = list;
  *count = total;
  return ATTN_OK;
}
