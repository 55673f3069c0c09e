/* fuzz_gguf.c - GGUF files: every tensor as numbers, every list to its end, and the configuration of a
 * model. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#include "data/llama/llama.h"

static void check_tensors(const gguf *file, size_t size) {
  for (size_t i = 0; i < gguf_count(file); i++) {
    const tensor *t = gguf_at(file, i);
    REQUIRE(gguf_find(file, t->name) == t && t->bytes < size && t->count > 0);
    float *x = malloc((size_t)t->count * sizeof *x);
    REQUIRE(x && tensor_to_f32(t, 0, t->count, x) == ATTN_OK);
    free(x);
  }
}

/* The sum of the bytes of texts, which are read so that one beyond the file is found. */
static size_t sum_list(gguf_list list) {
  size_t sum = 0;
  while (list.count) {
    const setting s = gguf_next(&list);
    REQUIRE(s.kind != SETTING_ABSENT);
    for (size_t i = 0; s.kind == SETTING_TEXT && i < s.bytes; i++) sum += (unsigned char)s.text[i];
  }
  return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *path = fuzz_file("x.gguf", data, size);
  gguf *file;
  data_llama_config c;
  fuzz_prepare(&file, sizeof file);
  if (!fuzz_succeeded(gguf_open(path, &file), &file, sizeof file)) return 0;
  check_tensors(file, size);
  REQUIRE(sum_list(gguf_get_list(file, "tokenizer.ggml.tokens")) <= 255 * size);
  REQUIRE(sum_list(gguf_get_list(file, "tokenizer.ggml.scores")) <= 255 * size);
  fuzz_prepare(&c, sizeof c);
  if (fuzz_succeeded(llama_read_gguf(file, &c), &c, sizeof c)) {
    REQUIRE(c.vocab > 0 && c.hidden > 0 && c.intermediate > 0 && c.layers > 0 && c.max_positions > 0);
    REQUIRE(c.heads > 0 && c.heads % c.kv_heads == 0 && c.head_dim > 0);
    REQUIRE(c.norm_eps >= 0 && (c.rotary_dim == 0 || c.rope.theta >= 1) && c.window >= 0);
    double frequency[64];
    REQUIRE(c.rotary_dim >= 0 && c.rotary_dim <= c.head_dim && c.rotary_dim % 2 == 0);
    if (c.rotary_dim > 0 && c.rotary_dim <= 128)
      data_rope_frequencies(&c.rope, c.rotary_dim, c.max_positions, frequency);
    for (int64_t i = 0; c.rotary_dim <= 128 && i < c.rotary_dim / 2; i++)
      REQUIRE(frequency[i] >= 0 && frequency[i] < 1.000001);
    llama_config_free(&c);
    data_llama *model;
    fuzz_prepare(&model, sizeof model);
    if (fuzz_succeeded(data_llama_open(path, &model), &model, sizeof model)) data_llama_close(model);
  }
  gguf_close(file);
  return 0;
}
