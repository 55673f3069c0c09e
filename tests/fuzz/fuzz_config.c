/* fuzz_config.c - an experiment's YAML file; after a byte 0xff, which YAML cannot have, an override of
 * --set. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/grid/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *end = size ? memchr(data, 0xff, size) : NULL;
  const size_t length = end ? (size_t)(end - data) : size;
  char *text = fuzz_text(data, length), *override = end ? fuzz_text(end + 1, size - length - 1) : NULL;
  config *c;
  fuzz_prepare(&c, sizeof c);
  const attn_status status =
      config_parse("fuzz.yaml", text, length, (const char *const *)&override, override ? 1 : 0, &c);
  if (fuzz_succeeded(status, &c, sizeof c)) {
    REQUIRE(c->n.count && c->variants.count && c->datasets.count && !strncmp(c->text, text, length));
    config_free(c);
  }
  free(text);
  free(override);
  return 0;
}
