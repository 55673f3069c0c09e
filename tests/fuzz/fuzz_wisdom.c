/* fuzz_wisdom.c - the text of measured block sizes; a refused one leaves what there was. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = fuzz_text(data, size);
  REQUIRE(attn_wisdom_import("attnlab wisdom 1\ncpu any\navx2 f32 64 64 32 128\n", NULL) == ATTN_OK);
  fuzz_prepare(NULL, 0);
  if (!fuzz_succeeded(attn_wisdom_import(text, NULL), NULL, 0)) REQUIRE(attn_wisdom_count() == 1);
  attn_wisdom_forget();
  free(text);
  return 0;
}
