/* byte_level.c - the alphabet of byte-level BPE (Radford et al. 2019, "Language Models are Unsupervised
 * Multitask Learners", 2.2). A vocabulary writes each byte as a character: the bytes 33-126, 161-172 and
 * 174-255 as the characters of their number, the others, in order, as the characters from 256 on. */
#include "data/tokens/tokenizer.h"

/* ---- the alphabet -------------------------------------------------------------------------------------- */

/* The others: 0-32 become 256-288, 127-160 become 289-322, 173 becomes 323. */
enum { FIRST = 256, SECOND = 289, THIRD = 323 };

static unsigned letter_of(uint8_t byte) {
  if (byte < 33) return FIRST + byte;
  if (byte >= 127 && byte <= 160) return SECOND + byte - 127;
  return byte == 173 ? THIRD : byte;
}

/* -1: no letter of the alphabet. */
static int byte_of(unsigned letter) {
  if (letter >= FIRST && letter < SECOND) return (int)(letter - FIRST);
  if (letter >= SECOND && letter < THIRD) return (int)(letter - SECOND + 127);
  if (letter == THIRD) return 173;
  return letter < FIRST && letter_of((uint8_t)letter) == letter ? (int)letter : -1;
}

size_t byte_level_letter(uint8_t byte, char out[2]) {
  const unsigned letter = letter_of(byte);
  if (letter < 128) {
    *out = (char)letter;
    return 1;
  }
  out[0] = (char)(0xc0 | letter >> 6);
  out[1] = (char)(0x80 | (letter & 63));
  return 2;
}

/* ---- decoding ------------------------------------------------------------------------------------------ */

/* A text with a character outside the alphabet is decoded to itself. */
static attn_status decode(const data_tokenizer *t, const token *from, buffer *to) {
  char plain[TOKEN_BYTES_MAX];
  size_t used = 0;
  (void)t;
  for (uint32_t i = 0; from->kind != TOKEN_LITERAL && i < from->bytes; used++) {
    const uint8_t *at = (const uint8_t *)from->text + i;
    const int byte = *at < 0x80             ? byte_of(*at)
                     : (*at & 0xe0) == 0xc0 ? byte_of((*at & 31U) << 6 | (at[1] & 63U))
                                            : -1;
    if (byte < 0) return buffer_put(to, from->text, from->bytes);
    plain[used] = (char)byte;
    i += *at < 0x80 ? 1 : 2;
  }
  return used ? buffer_put(to, plain, used) : buffer_put(to, from->text, from->bytes);
}

const tokenizer_kind byte_level = {encode_by_steps, decode};
