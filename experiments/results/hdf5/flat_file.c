/* flat_file.c - one table as HDF5 variables that netCDF-4 readers understand. */
#include "experiments/results/hdf5/flat_file.h"

#include <stdlib.h>
#include <string.h>

#include "data/formats/hdf5_input.h"
#include "experiments/results/hdf5/groups.h"
#include "experiments/results/row_json.h"

static bool write_series(hid_t root, const h5_dim *rows, const flat_file *f) {
  const flat_series *s = &f->series;
  const h5_variable along = {
      .name = s->dimension, .type = H5_F64, .data = s->at, .units = "1", .long_name = s->about};
  h5_table t;
  attn_status status = h5_table_open(root, s->group, rows, &along, s->length, &t);
  for (size_t i = 0; !status && i < f->count; i++)
    memcpy((double *)t.cells + i * s->length, (const char *)f->rows[i] + s->offset,
           s->length * sizeof(double));
  if (!status)
    status = h5_table_write(
        &t, (h5_variable){.name = s->name, .type = H5_F64, .units = "1", .long_name = s->long_name});
  h5_table_close(&t);
  return !status;
}

static bool write_columns(hid_t root, const flat_file *f, const int64_t *numbers) {
  h5_dim axis = {.scale = -1, .length = f->count};
  bool good = h5_attribute_text(root, "title", f->title) &&
              (!f->schema || h5_attribute_text(root, "schema", f->schema)) &&
              h5_dimension_write(root,
                                 &(h5_variable){.name = f->dimension,
                                                .type = H5_I64,
                                                .data = numbers,
                                                .units = "1",
                                                .long_name = "number of the row"},
                                 &axis);
  for (const result_column *c = f->columns; good && c->name; c++)
    good = h5_column_write(root, c, f->rows, f->count, (const h5_dim *[]){&axis, NULL}, NULL);
  if (good && f->series.group) good = write_series(root, &axis, f);
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

static void put_row(json_stream *out, const flat_file *f, const void *row) {
  const flat_series *s = &f->series;
  json_stream_open(out, '{');
  for (const result_column *c = f->columns; c->name; c++) {
    json_stream_name(out, c->name);
    json_stream_value(out, result_column_json(row, c));
  }
  if (s->group) {
    json_stream_name(out, s->group);
    json_stream_value(out,
                      result_numbers_json((const void *)((const char *)row + s->offset), (int64_t)s->length));
  }
  json_stream_close(out, '}');
}

void flat_file_put(json_stream *out, const void *file) {
  const flat_file *f = file;
  json_stream_open(out, '{');
  json_stream_name(out, "lines");
  json_stream_value(out, json_array());
  json_stream_name(out, "rows");
  json_stream_open(out, '[');
  for (size_t i = 0; i < f->count; i++) put_row(out, f, f->rows[i]);
  json_stream_close(out, ']');
  json_stream_close(out, '}');
}
