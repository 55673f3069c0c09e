/* fuzz_shards.c - model.safetensors.index.json, which names the files of a model; none of them is there. */
#include "tests/fuzz/fuzz.h"

#include "data/weights/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  weights *files;
  fuzz_file("model.safetensors.index.json", data, size);
  fuzz_prepare(&files, sizeof files);
  REQUIRE(!fuzz_succeeded(weights_open(fuzz_directory(), &files), &files, sizeof files));
  return 0;
}
