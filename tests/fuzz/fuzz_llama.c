/* fuzz_llama.c - config.json of a model directory. */
#include "tests/fuzz/fuzz.h"

#include "data/llama/llama.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  data_llama_config c;
  fuzz_file("config.json", data, size);
  fuzz_prepare(&c, sizeof c);
  if (fuzz_succeeded(llama_read_config(fuzz_directory(), &c), &c, sizeof c)) {
    REQUIRE(c.vocab > 0 && c.hidden > 0 && c.intermediate > 0 && c.layers > 0 && c.max_positions > 0);
    REQUIRE(c.heads > 0 && c.kv_heads > 0 && c.heads % c.kv_heads == 0 && c.head_dim > 0 &&
            c.head_dim % 2 == 0);
    REQUIRE(c.rms_eps >= 0 && c.rope_theta >= 1);
  }
  return 0;
}
