/* fuzz_pieces.c - SentencePiece's arrays, one piece in each of the input's lines (a type, a score, a text),
 * and the rest of the input, after an empty line, as a text; it comes back if no piece of it is unknown. */
#include "tests/fuzz/round_trip.h"

enum { PIECES = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  data_piece pieces[PIECES];
  float scores[PIECES];
  int32_t types[PIECES];
  data_sentencepiece s = {.file = "x.gguf", .pieces = pieces, .scores = scores, .types = types, .bos = -1};
  const char *at = (const char *)data, *end = at + size;
  while (s.count < PIECES && at < end) {
    const char *line = memchr(at, '\n', (size_t)(end - at));
    if (!line || line == at) break;
    types[s.count] = at[0] % 8;
    scores[s.count] = line > at + 1 ? (float)at[1] : 0;
    pieces[s.count++] = (data_piece){at + 2, line > at + 2 ? (size_t)(line - at) - 2 : 0};
    at = line + 1;
  }
  if (at < end) at++;
  s.prefix = size % 2;
  s.unknown = size % 3 ? -1 : 0;
  data_tokenizer *t;
  fuzz_prepare(&t, sizeof t);
  if (!fuzz_succeeded(data_tokenizer_make(&s, &t), &t, sizeof t)) return 0;
  bool blanks = false;
  for (const char *c = at; c + 2 < end; c++) blanks |= memcmp(c, "\xe2\x96\x81", 3) == 0;
  round_trip(t, at, (size_t)(end - at), s.unknown < 0 && !blanks);
  data_tokenizer_close(t);
  return 0;
}
