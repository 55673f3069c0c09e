/* fuzz_safetensors.c - safetensors files: every tensor as numbers, and the three of a capture. */
#include "tests/fuzz/fuzz.h"

#include "data/formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *path = fuzz_file("x.safetensors", data, size);
  safetensors *file;
  fuzz_prepare(&file, sizeof file);
  if (fuzz_succeeded(safetensors_open(path, &file), &file, sizeof file)) {
    size_t bytes = 0;
    for (size_t i = 0; i < safetensors_count(file); i++) {
      const tensor *t = safetensors_at(file, i);
      data_array array;
      bytes += t->bytes;
      REQUIRE(safetensors_find(file, t->name) == t);
      fuzz_prepare(&array, sizeof array);
      if (fuzz_succeeded(tensor_to_array(t, &array), &array, sizeof array)) {
        REQUIRE(data_array_count(&array) == t->count);
        data_array_free(&array);
      }
    }
    REQUIRE(bytes + 8 <= size);
    safetensors_close(file);
  }
  data_qkv x;
  fuzz_prepare(&x, sizeof x);
  if (fuzz_succeeded(data_qkv_read_safetensors(&(data_reading){.in = path}, &x), &x, sizeof x)) {
    data_qkv_check_finite(&x);
    data_qkv_free(&x);
  }
  return 0;
}
