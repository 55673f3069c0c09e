/* variables.c - writing variables and attributes. The rules and why: variables.h. */
#include "experiments/results/hdf5/variables.h"

#include <hdf5_hl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_ROWS = 1024, CHUNK_COLUMNS = 64, DEFLATE_LEVEL = 1, ATTRIBUTE_MAX = 60000 };

static bool failed(const char *name) {
  attn_fail(ATTN_EFOREIGN, "HDF5 cannot make %s", name);
  return false;
}

static unsigned creation_order(void) { return H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED; }

hid_t h5_file_create(void) {
  hid_t file = -1, access = H5Pcreate(H5P_FILE_ACCESS), create = H5Pcreate(H5P_FILE_CREATE);
  if (access < 0 || create < 0) goto out;
  /* A newer low bound gives the image a superblock with a wrong checksum (HDF5 1.10.8). */
  if (H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_V18) < 0 ||
      H5Pset_fapl_core(access, 32 << 20, 0) < 0 || H5Pset_link_creation_order(create, creation_order()) < 0 ||
      H5Pset_attr_creation_order(create, creation_order()) < 0 || H5Pset_obj_track_times(create, 0) < 0)
    goto out;
  file = H5Fcreate("attnlab results", H5F_ACC_TRUNC, create, access);
out:
  if (access >= 0) H5Pclose(access);
  if (create >= 0) H5Pclose(create);
  if (file < 0) failed("a file in memory");
  return file;
}

attn_status h5_file_image(hid_t file, void **image, size_t *size) {
  attn_status status = ATTN_OK;
  void *bytes = NULL;
  ssize_t length = -1;
  if (H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0) length = H5Fget_file_image(file, NULL, 0);
  if (length > 0) bytes = malloc((size_t)length);
  if (!bytes || H5Fget_file_image(file, bytes, (size_t)length) != length) {
    free(bytes);
    status = attn_fail(ATTN_EFOREIGN, "HDF5 cannot give the image of a file");
  } else {
    *image = bytes;
    *size = (size_t)length;
  }
  H5Fclose(file);
  return status;
}

hid_t h5_group_create(hid_t parent, const char *name) {
  hid_t group = -1, create = H5Pcreate(H5P_GROUP_CREATE);
  if (create >= 0 && H5Pset_link_creation_order(create, creation_order()) >= 0 &&
      H5Pset_attr_creation_order(create, creation_order()) >= 0 && H5Pset_obj_track_times(create, 0) >= 0)
    group = H5Gcreate2(parent, name, H5P_DEFAULT, create, H5P_DEFAULT);
  if (create >= 0) H5Pclose(create);
  if (group < 0) failed(name);
  return group;
}

/* ---- attributes ---------------------------------------------------------------------------------------- */

static bool attribute(hid_t object, const char *name, hid_t file_type, hid_t memory_type, hid_t space,
                      const void *value) {
  hid_t id = H5Acreate2(object, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
  bool good = id >= 0 && H5Awrite(id, memory_type, value) >= 0;
  if (id >= 0 && H5Aclose(id) < 0) good = false;
  return good || failed(name);
}

bool h5_attribute_text(hid_t object, const char *name, const char *text) {
  size_t length = strlen(text);
  /* An attribute lives in its object's header, which holds less than 64 KiB. */
  if (length > ATTRIBUTE_MAX)
    for (length = ATTRIBUTE_MAX; length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80;) length--;
  char *value = calloc(length + 1, 1);
  hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
  bool good = value && type >= 0 && space >= 0 && H5Tset_size(type, length + 1) >= 0 &&
              H5Tset_cset(type, H5T_CSET_UTF8) >= 0 && H5Tset_strpad(type, H5T_STR_NULLTERM) >= 0;
  if (good) memcpy(value, text, length);
  good = good ? attribute(object, name, type, type, space, value) : failed(name);
  if (type >= 0) H5Tclose(type);
  if (space >= 0) H5Sclose(space);
  free(value);
  return good;
}

bool h5_attribute_int(hid_t object, const char *name, int32_t value) {
  hid_t space = H5Screate(H5S_SCALAR);
  bool good =
      space >= 0 ? attribute(object, name, H5T_STD_I32LE, H5T_NATIVE_INT32, space, &value) : failed(name);
  if (space >= 0) H5Sclose(space);
  return good;
}

static bool attribute_fill(hid_t object) {
  const double nan_value = (double)NAN;
  const hsize_t one = 1;
  hid_t space = H5Screate_simple(1, &one, NULL);
  bool good = space >= 0
                  ? attribute(object, "_FillValue", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, space, &nan_value)
                  : failed("_FillValue");
  if (space >= 0) H5Sclose(space);
  return good;
}

/* flag_values 0, 1, ... in the variable's own type, and flag_meanings: words, so that blanks become "_". */
static bool attribute_flags(hid_t object, h5_type type, const char *const *flags) {
  hsize_t count = 0;
  size_t length = 0;
  for (; flags[count]; count++) length += strlen(flags[count]) + 1;
  int32_t *values = calloc((size_t)count + 1, sizeof *values);
  char *meanings = calloc(length + 1, 1);
  hid_t space = count > 0 ? H5Screate_simple(1, &count, NULL) : -1;
  bool good = values && meanings && space >= 0;
  if (good) {
    char *out = meanings;
    for (size_t i = 0; i < count; i++) {
      values[i] = (int32_t)i;
      char *blank = out + (i > 0);
      out += sprintf(out, i ? " %s" : "%s", flags[i]);
      while ((blank = strchr(blank, ' ')) != NULL) *blank = '_';
    }
    good = attribute(object, "flag_values", type == H5_I8 ? H5T_STD_I8LE : H5T_STD_I32LE, H5T_NATIVE_INT32,
                     space, values) &&
           h5_attribute_text(object, "flag_meanings", meanings);
  } else {
    failed("flag_values");
  }
  if (space >= 0) H5Sclose(space);
  free(meanings);
  free(values);
  return good;
}

static bool attributes(hid_t id, const h5_variable *v) {
  return (!v->units || h5_attribute_text(id, "units", v->units)) &&
         (!v->long_name || h5_attribute_text(id, "long_name", v->long_name)) &&
         (v->type != H5_F64 || attribute_fill(id)) && (!v->flags || attribute_flags(id, v->type, v->flags)) &&
         (!v->boolean || h5_attribute_text(id, "dtype", "bool")) &&
         (!v->coordinates || h5_attribute_text(id, "coordinates", v->coordinates));
}

/* ---- variables ----------------------------------------------------------------------------------------- */

static hid_t text_type(void) {
  hid_t type = H5Tcopy(H5T_C_S1);
  if (type >= 0 && (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
    H5Tclose(type);
    type = -1;
  }
  return type;
}

static void types(h5_type type, hid_t text, hid_t *file, hid_t *memory) {
  switch (type) {
  case H5_F64:
    *file = H5T_IEEE_F64LE, *memory = H5T_NATIVE_DOUBLE;
    return;
  case H5_F32:
    *file = H5T_IEEE_F32LE, *memory = H5T_NATIVE_FLOAT;
    return;
  case H5_I64:
    *file = H5T_STD_I64LE, *memory = H5T_NATIVE_INT64;
    return;
  case H5_I32:
    *file = H5T_STD_I32LE, *memory = H5T_NATIVE_INT32;
    return;
  case H5_I8:
    *file = H5T_STD_I8LE, *memory = H5T_NATIVE_INT8;
    return;
  case H5_TEXT:
    break;
  }
  *file = *memory = text;
}

static bool layout(hid_t create, const h5_variable *v, int rank) {
  const double nan_value = (double)NAN;
  hsize_t chunk[3] = {CHUNK_ROWS,
                      rank == 2 && v->dims[1]->length < CHUNK_COLUMNS ? v->dims[1]->length : CHUNK_COLUMNS};
  for (int i = 0; rank == 3 && i < rank; i++) chunk[i] = i ? v->dims[i]->length : 1; /* read one at a time */
  if (H5Pset_attr_creation_order(create, creation_order()) < 0 || H5Pset_obj_track_times(create, 0) < 0)
    return false;
  if (v->type == H5_F64 && H5Pset_fill_value(create, H5T_NATIVE_DOUBLE, &nan_value) < 0) return false;
  if (!v->dims[0]->unlimited && rank < 3) return true;
  if (H5Pset_chunk(create, rank, chunk) < 0) return false;
  return v->type == H5_TEXT || (H5Pset_shuffle(create) >= 0 && H5Pset_deflate(create, DEFLATE_LEVEL) >= 0);
}

/* The variable without its dimensions; < 0 on failure. */
static hid_t create_variable(hid_t group, const h5_variable *v) {
  const int rank = v->dims[1] ? v->dims[2] ? 3 : 2 : 1;
  hsize_t length[3], limit[3];
  hid_t id = -1, space = -1, create = -1, file_type, memory_type, text = text_type();
  types(v->type, text, &file_type, &memory_type);
  for (int i = 0; i < rank; i++) {
    length[i] = v->dims[i]->length;
    limit[i] = v->dims[i]->unlimited ? H5S_UNLIMITED : length[i];
  }
  space = H5Screate_simple(rank, length, limit);
  create = H5Pcreate(H5P_DATASET_CREATE);
  if (text < 0 || space < 0 || create < 0 || !layout(create, v, rank)) goto out;
  id = H5Dcreate2(group, v->name, file_type, space, H5P_DEFAULT, create, H5P_DEFAULT);
  if (id < 0) goto out;
  if ((H5Sget_simple_extent_npoints(space) > 0 &&
       H5Dwrite(id, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, v->data) < 0) ||
      !attributes(id, v)) {
    H5Dclose(id);
    id = -1;
  }
out:
  if (id < 0) failed(v->name);
  if (create >= 0) H5Pclose(create);
  if (space >= 0) H5Sclose(space);
  if (text >= 0) H5Tclose(text);
  return id;
}

bool h5_variable_write(hid_t group, const h5_variable *v) {
  hid_t id = create_variable(group, v);
  if (id < 0) return false;
  bool good = true;
  for (unsigned i = 0; i < 3 && v->dims[i]; i++)
    good = good && H5DSattach_scale(id, v->dims[i]->scale, i) >= 0;
  if (H5Dclose(id) < 0) good = false;
  return good || failed(v->name);
}

bool h5_dimension_write(hid_t group, const h5_variable *v, h5_dim *dim) {
  h5_variable coordinate = *v;
  coordinate.dims[0] = dim;
  coordinate.dims[1] = coordinate.dims[2] = NULL;
  dim->scale = create_variable(group, &coordinate);
  if (dim->scale < 0) return false;
  return H5DSset_scale(dim->scale, v->name) >= 0 || failed(v->name);
}

static void fill(const result_column *c, const void *const *records, size_t count, void *out) {
  for (size_t i = 0; i < count; i++) {
    if (c->type == COLUMN_TEXT)
      ((const char **)out)[i] = result_column_text(records[i], c);
    else if (c->type == COLUMN_F64)
      ((double *)out)[i] = result_column_f64(records[i], c);
    else if (c->type == COLUMN_I64)
      ((int64_t *)out)[i] = result_column_int(records[i], c);
    else if (c->type == COLUMN_I32)
      ((int32_t *)out)[i] = (int32_t)result_column_int(records[i], c);
    else
      ((int8_t *)out)[i] = (int8_t)result_column_int(records[i], c);
  }
}

bool h5_column_write(hid_t group, const result_column *c, const void *const *records, size_t count,
                     const h5_dim *const dims[2], const char *coordinates) {
  static const h5_type stored[] = {[COLUMN_TEXT] = H5_TEXT, [COLUMN_F64] = H5_F64, [COLUMN_I64] = H5_I64,
                                   [COLUMN_I32] = H5_I32,   [COLUMN_FLAG] = H5_I8, [COLUMN_BOOL] = H5_I8};
  void *data = calloc(count + 1, 8); /* the widest element */
  if (!data) return failed(c->name);
  fill(c, records, count, data);
  const bool good = h5_variable_write(group, &(h5_variable){.name = c->name,
                                                            .type = stored[c->type],
                                                            .dims = {dims[0], dims[1]},
                                                            .data = data,
                                                            .units = c->units,
                                                            .long_name = c->long_name,
                                                            .flags = c->type == COLUMN_FLAG ? c->flags : NULL,
                                                            .boolean = c->type == COLUMN_BOOL,
                                                            .coordinates = c->measure ? coordinates : NULL});
  free(data);
  return good;
}
