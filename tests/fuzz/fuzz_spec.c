/* fuzz_spec.c - the text of a variant, and that of a dataset: "longformer:window=256". */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "data/data.h"

static void try_variant(const char *text, const char *canonical) {
  attn_spec *spec;
  fuzz_prepare(&spec, sizeof spec);
  if (!fuzz_succeeded(attn_spec_parse(&spec, text), &spec, sizeof spec)) {
    REQUIRE(!canonical);
    return;
  }
  if (canonical)
    REQUIRE(!strcmp(spec->text, canonical));
  else
    try_variant(spec->text, spec->text);
  attn_spec_destroy(spec);
}

static void try_dataset(const char *text, const char *canonical) {
  char *printed;
  fuzz_prepare(&printed, sizeof printed);
  if (!fuzz_succeeded(data_source_parse(text, NULL, &printed), &printed, sizeof printed)) {
    REQUIRE(!canonical);
    return;
  }
  if (canonical)
    REQUIRE(!strcmp(printed, canonical));
  else
    try_dataset(printed, printed);
  free(printed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = fuzz_text(data, size);
  try_variant(text, NULL);
  try_dataset(text, NULL);
  free(text);
  return 0;
}
