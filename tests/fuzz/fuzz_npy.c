/* fuzz_npy.c - NumPy's .npy files, read as tensors, as token ids and as a matrix. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#include "data/formats/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *path = fuzz_file("x.npy", data, size);
  data_array array;
  fuzz_prepare(&array, sizeof array);
  const bool is_array = fuzz_succeeded(data_npy_read(path, &array), &array, sizeof array);
  if (is_array) {
    const size_t bytes = (size_t)data_array_count(&array) * attn_dtype_size(array.dtype);
    REQUIRE(bytes < 2 * size); /* an element of two bytes becomes one of four */
    data_check_finite(&array, "x");
  }

  data_array bf16;
  fuzz_prepare(&bf16, sizeof bf16);
  if (fuzz_succeeded(npy_read(path, true, &bf16), &bf16, sizeof bf16)) {
    REQUIRE(!is_array && bf16.dtype == ATTN_F32);
    data_array_free(&bf16);
  }

  struct {
    int64_t rows, columns;
    double *values;
  } matrix;
  fuzz_prepare(&matrix, sizeof matrix);
  if (fuzz_succeeded(data_matrix_read(path, &matrix.rows, &matrix.columns, &matrix.values), &matrix,
                     sizeof matrix)) {
    REQUIRE(is_array && matrix.rows * matrix.columns == data_array_count(&array));
    free(matrix.values);
  }
  if (is_array) data_array_free(&array);

  struct {
    int64_t *at, count;
    data_array shape;
  } tokens;
  fuzz_prepare(&tokens, sizeof tokens);
  if (fuzz_succeeded(data_npy_read_ids(path, &tokens.at, &tokens.count, &tokens.shape), &tokens,
                     sizeof tokens)) {
    REQUIRE(!is_array && (size_t)tokens.count * 4 < size && tokens.count == data_array_count(&tokens.shape));
    free(tokens.at);
  }
  return 0;
}
