/* fuzz_base64.c - bytes to base64 and back; and the input as the text of as many bytes as it could stand
 * for. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/support/base64.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t *bytes = malloc(size + 1);
  char *text = base64_encode(data, size);
  REQUIRE(bytes && text && base64_decode(text, strlen(text), bytes, size));
  REQUIRE(!size || !memcmp(bytes, data, size));
  free(text);
  for (size_t padding = 0; padding < 3 && size / 4 * 3 >= padding; padding++) {
    const size_t count = size / 4 * 3 - padding;
    uint8_t *exact = malloc(count + !count);
    REQUIRE(exact);
    if (base64_decode((const char *)data, size, exact, count)) {
      text = base64_encode(exact, count);
      REQUIRE(text && strlen(text) == size && base64_decode(text, size, bytes, count) &&
              !memcmp(bytes, exact, count));
      free(text);
    }
    free(exact);
  }
  free(bytes);
  return 0;
}
