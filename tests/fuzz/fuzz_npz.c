/* fuzz_npz.c - NumPy's .npz archives, read as one array and as Q, K and V. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

#include "data/data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char member[600];
  data_array array;
  data_qkv x;
  if (size < 4 || memcmp(data, "PK", 2) != 0) return 0; /* other formats have fuzzers of their own */
  const char *path = fuzz_file("x.npz", data, size);
  snprintf(member, sizeof member, "%s:q", path);
  fuzz_prepare(&array, sizeof array);
  if (fuzz_succeeded(data_npy_read(member, &array), &array, sizeof array)) {
    /* Deflate makes at most 1032 bytes of one, and an element of two bytes becomes one of four. */
    REQUIRE((size_t)data_array_count(&array) * attn_dtype_size(array.dtype) <= 2 * 1033 * size);
    data_check_finite(&array, "x");
    data_array_free(&array);
  }
  fuzz_prepare(&x, sizeof x);
  if (fuzz_succeeded(data_qkv_read(&(data_reading){.in = path, .layout = DATA_BNHD}, &x), &x, sizeof x))
    data_qkv_free(&x);
  return 0;
}
