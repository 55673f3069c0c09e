/* round_trip.h - a text to ids and back, for the fuzzers of tokenizers. */
#ifndef TESTS_FUZZ_ROUND_TRIP_H
#define TESTS_FUZZ_ROUND_TRIP_H

#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "data/data.h"

/* same: the text must come back. */
static inline void round_trip(const data_tokenizer *t, const char *text, size_t bytes, bool same) {
  struct {
    int64_t *id, count;
  } ids;
  char *again = NULL;
  size_t length = 0;
  fuzz_prepare(&ids, sizeof ids);
  if (!fuzz_succeeded(data_tokenizer_encode(t, "text", text, bytes, &ids.id, &ids.count), &ids, sizeof ids))
    return;
  REQUIRE(ids.count > 0);
  for (int64_t i = 0; i < ids.count; i++) REQUIRE(ids.id[i] >= 0 && ids.id[i] < data_tokenizer_size(t));
  REQUIRE(data_tokenizer_decode(t, ids.id, ids.count, &again, &length) == ATTN_OK);
  REQUIRE(!same || (length == bytes && memcmp(again, text, bytes) == 0));
  free(again);
  free(ids.id);
}

#endif
