/* hdf5_write.c - HDF5 files that are built as an image in memory first: HDF5 1.10 does not survive a full
 * disk when it writes itself. Times are untracked, so that the same content gives the same bytes. */
#include "data/formats/hdf5_write.h"

#include <stdlib.h>
#include <string.h>

#include "data/formats/hdf5_input.h"

bool hdf5_write_attribute(hid_t file, const hdf5_attribute *a) {
  hid_t type = -1, space = H5Screate(H5S_SCALAR), attribute = -1;
  bool good = false;
  const void *value = a->text ? (const void *)a->text : a->real ? (const void *)&a->number : &a->integer;
  hid_t memory = a->real ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64;
  if (a->text) {
    type = H5Tcopy(H5T_C_S1);
    if (type < 0 || H5Tset_size(type, strlen(a->text) + 1) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)
      goto out;
    memory = type;
  }
  hid_t stored = a->text ? type : a->real ? H5T_IEEE_F64LE : H5T_STD_I64LE;
  attribute = H5Acreate2(file, a->name, stored, space, H5P_DEFAULT, H5P_DEFAULT);
  good = attribute >= 0 && H5Awrite(attribute, memory, value) >= 0;
out:
  if (attribute >= 0) H5Aclose(attribute);
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  return good;
}

bool hdf5_write_dataset(hid_t file, const char *name, int rank, const hsize_t *dims, hid_t stored,
                        hid_t memory, const void *at) {
  hid_t space = H5Screate_simple(rank, dims, NULL), plist = H5Pcreate(H5P_DATASET_CREATE), dataset = -1;
  bool good = space >= 0 && plist >= 0 && H5Pset_obj_track_times(plist, 0) >= 0;
  if (good) dataset = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  good = dataset >= 0 && H5Dwrite(dataset, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, at) >= 0;
  if (dataset >= 0) H5Dclose(dataset);
  if (plist >= 0) H5Pclose(plist);
  if (space >= 0) H5Sclose(space);
  return good;
}

attn_status hdf5_write(const char *path, const output_kind *kind,
                       bool (*fill)(hid_t file, const void *context), const void *context) {
  attn_status status = ATTN_OK;
  hid_t file = -1;
  void *image = NULL;
  const hdf5_quiet before = hdf5_quiet_begin();
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  bool good = access >= 0 && H5Pset_fapl_core(access, 1 << 20, 0) >= 0 &&
              H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_V18) >= 0;
  if (good) file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  good = file >= 0 && fill(file, context);
  ssize_t bytes = good && H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0 ? H5Fget_file_image(file, NULL, 0) : -1;
  if (bytes > 0) image = malloc((size_t)bytes);
  if (image && H5Fget_file_image(file, image, (size_t)bytes) == bytes)
    status = hdf5_output(path, kind, image, (size_t)bytes);
  else
    status = attn_fail(ATTN_EFOREIGN, "%s: HDF5 could not build the file in memory", path);
  free(image);
  if (file >= 0) H5Fclose(file);
  if (access >= 0) H5Pclose(access);
  hdf5_quiet_end(before);
  return status;
}
