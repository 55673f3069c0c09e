/* flat_file.c - one table as HDF5 variables that netCDF-4 readers understand. */
#include "experiments/results/hdf5/flat_file.h"

#include <stdlib.h>

#include "data/formats/hdf5_input.h"
#include "experiments/results/hdf5/variables.h"

static bool write_columns(hid_t root, const flat_file *f, const int64_t *numbers) {
  h5_dim axis = {.scale = -1, .length = f->count};
  bool good = h5_attribute_text(root, "title", f->title) &&
              h5_dimension_write(root,
                                 &(h5_variable){.name = f->dimension,
                                                .type = H5_I64,
                                                .data = numbers,
                                                .units = "1",
                                                .long_name = "number of the row"},
                                 &axis);
  for (const result_column *c = f->columns; good && c->name; c++)
    good = h5_column_write(root, c, f->rows, f->count, (const h5_dim *[]){&axis, NULL}, NULL);
  if (axis.scale >= 0) H5Dclose(axis.scale);
  return good;
}

attn_status flat_file_write(const char *path, const output_kind *kind, const flat_file *f) {
  void *image = NULL;
  size_t size = 0;
  int64_t *numbers = calloc(f->count + 1, sizeof *numbers);
  if (!numbers) return attn_fail(ATTN_ENOMEM, "no memory for %zu rows", f->count);
  for (size_t i = 0; i < f->count; i++) numbers[i] = (int64_t)i;
  const hid_t file = h5_file_create();
  const bool good = file >= 0 && write_columns(file, f, numbers);
  free(numbers);
  if (!good) {
    if (file >= 0) H5Fclose(file);
    return ATTN_EFOREIGN;
  }
  attn_status status = h5_file_image(file, &image, &size);
  if (!status) status = hdf5_output(path, kind, image, size);
  free(image);
  return status;
}
