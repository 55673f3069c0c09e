/* fuzz_tokenizer.c - tokenizer.json of a model directory; a text that it encodes comes back. */
#include "tests/fuzz/round_trip.h"

/* Whether ids stand for a text again: bytes that are letters once, with nothing that changes the text, nor a
 * token that a text is cut at and that is also the letter of a byte. */
static bool comes_back(const char *file) {
  static const char *const changes[] = {"normalizer", "added_tokens", "Removed", "Metaspace",
                                        "Bert",       "Char",         "White",   "Piece",
                                        "unk",        "continuing",   "suffix",  "\\"};
  const char *level = strstr(file, "ByteLevel");
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
    if (strstr(file, changes[i])) return false;
  return level && !strstr(level + 1, "ByteLevel") && strstr(file, "add_prefix_space\":false");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const texts[] = {"a", "ab ba  abba\n", "it's 12345",
                                      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"};
  data_tokenizer *t;
  char *file = fuzz_text(data, size);
  fuzz_file("tokenizer.json", data, size);
  fuzz_prepare(&t, sizeof t);
  if (fuzz_succeeded(data_tokenizer_open(fuzz_directory(), &t), &t, sizeof t)) {
    REQUIRE(data_tokenizer_size(t) > 0 && data_tokenizer_bos(t) < data_tokenizer_size(t));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
      round_trip(t, texts[i], strlen(texts[i]), comes_back(file));
    round_trip(t, (const char *)data, size, comes_back(file));
    data_tokenizer_close(t);
  }
  free(file);
  return 0;
}
