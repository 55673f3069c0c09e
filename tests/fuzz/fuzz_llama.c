/* fuzz_llama.c - config.json of a model directory, of a decoder or an encoder. */
#include "tests/fuzz/fuzz.h"

#include <math.h>

#include "data/llama/llama.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  data_llama_config c;
  fuzz_file("config.json", data, size);
  fuzz_prepare(&c, sizeof c);
  if (fuzz_succeeded(llama_read_config(fuzz_directory(), &c), &c, sizeof c)) {
    REQUIRE(c.vocab > 0 && c.hidden > 0 && c.intermediate > 0 && c.layers > 0 && c.max_positions > 0);
    REQUIRE(c.heads > 0 && c.kv_heads > 0 && c.heads % c.kv_heads == 0 && c.head_dim > 0);
    REQUIRE(c.norm_eps >= 0 && (c.rotary_dim == 0 || c.rope.theta >= 1) && c.window >= 0);
    REQUIRE(c.experts_used >= 0 && c.experts_used <= c.experts && (c.experts == 0) == (c.experts_used == 0));
    for (int64_t l = 0; l < c.layers; l++)
      REQUIRE(!(c.layer[l] & DATA_LLAMA_EXPERTS) || (c.experts > 0 && c.expert_intermediate > 0));
    double frequency[64];
    REQUIRE(c.rotary_dim >= 0 && c.rotary_dim <= c.head_dim && c.rotary_dim % 2 == 0 && c.layer &&
            c.activation);
    REQUIRE(c.score_scale >= 0 && c.score_cap >= 0 && c.logit_cap >= 0 && isfinite(c.logit_scale));
    if (c.rotary_dim > 0 && c.rotary_dim <= 128)
      data_rope_frequencies(&c.rope, c.rotary_dim, c.max_positions, frequency);
    for (int64_t i = 0; c.rotary_dim <= 128 && i < c.rotary_dim / 2; i++)
      REQUIRE(frequency[i] >= 0 && (c.rope.divisors || frequency[i] < 1.000001));
    llama_config_free(&c);
  }
  return 0;
}
