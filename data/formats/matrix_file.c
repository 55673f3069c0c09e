/* matrix_file.c - a matrix from an .npy file, for parameters that name one (attn_matrix_reader_set). */
#include <stdlib.h>

#include "attn_variant.h"
#include "data/data.h"

attn_status data_matrix_read(const char *path, int64_t *rows, int64_t *columns, double **values) {
  data_array array = {0};
  double *wide = NULL;
  attn_status status = data_npy_read(path, &array);
  if (status) return status;
  if (array.rank != 2) {
    status = attn_fail(ATTN_EINVAL, "%s: %d dimensions, expected a matrix", path, array.rank);
    goto out;
  }
  size_t bytes;
  int64_t factors[] = {array.shape[0], array.shape[1], (int64_t)sizeof *wide};
  if ((status = attn_size_product(path, factors, 3, &bytes))) goto out;
  if (!(wide = malloc(bytes ? bytes : 1))) {
    status = attn_fail(ATTN_ENOMEM, "%s: no memory for %zu bytes", path, bytes);
    goto out;
  }
  for (int64_t i = 0; i < array.shape[0] * array.shape[1]; i++) wide[i] = attn_get(array.at, i, array.dtype);
  *rows = array.shape[0];
  *columns = array.shape[1];
  *values = wide;
out:
  data_array_free(&array);
  return status;
}
