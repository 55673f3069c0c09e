/* byte_level.c - byte-level BPE (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners",
 * 2.2): a text is cut into pieces, and those are merged from bytes.
 *
 * A vocabulary writes each byte as a character: the bytes 33-126, 161-172 and 174-255 as the characters of
 * their number, the others, in order, as the characters from 256 on. */
#include <stdlib.h>
#include <string.h>
#include <uninorm.h>

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

/* ---- encoding ------------------------------------------------------------------------------------------ */

static bool find_pair(const void *context, const merge_symbol *left, const merge_symbol *right, uint32_t end,
                      uint32_t *rank, int32_t *id) {
  const data_tokenizer *t = context;
  (void)end;
  const int32_t key[2] = {left->id, right->id}, found = token_map_find(&t->by_pair, key, sizeof key);
  if (found < 0) return false;
  *rank = (uint32_t)found;
  *id = t->pair[found].into;
  return true;
}

/* The token whose bytes are the piece. */
static const token *find_whole(const data_tokenizer *t, const uint8_t *piece, size_t bytes) {
  char letters[TOKEN_BYTES_MAX + 2];
  size_t used = 0;
  if (bytes > t->words.longest) return NULL;
  for (size_t i = 0; i < bytes; i++) {
    used += byte_level_letter(piece[i], letters + used);
    if (used > t->words.longest) return NULL;
  }
  return vocabulary_find(&t->words, letters, used);
}

static attn_status encode_piece(encoder *e, const uint8_t *piece, size_t bytes) {
  const data_tokenizer *t = e->t;
  const token *whole = t->ignore_merges ? find_whole(t, piece, bytes) : NULL;
  if (whole) return encoder_put(e, whole->id);
  if (bytes > MERGE_BYTES_MAX)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: a piece of text of %zu bytes, more than %d", t->file, bytes,
                     MERGE_BYTES_MAX);
  attn_status status = merge_reserve(&e->merge, bytes, t->pairs);
  for (size_t i = 0; !status && i < bytes; i++) {
    const int32_t id = t->byte_id[piece[i]];
    if (id < 0)
      status =
          attn_fail(ATTN_EINVAL, "%s: no token for the byte 0x%02x, which the text has", t->file, piece[i]);
    e->merge.symbol[i] = (merge_symbol){.begin = (uint32_t)i, .id = id};
  }
  if (status) return status;
  merge_run(&e->merge, bytes, (uint32_t)bytes, find_pair, t);
  for (int32_t i = 0; !status && i >= 0; i = e->merge.symbol[i].next)
    status = encoder_put(e, e->merge.symbol[i].id);
  return status;
}

typedef struct position {
  encoder *e;
  int step;
} position;

/* A pattern_piece: takes the steps from context's on, each on what the one before it left. */
static attn_status take_steps(void *context, const uint8_t *text, size_t bytes) {
  const position *at = context;
  const data_tokenizer *t = at->e->t;
  if (at->step == t->steps) return encode_piece(at->e, text, bytes);
  const split_step *step = &t->step[at->step];
  position next = {at->e, at->step + 1};
  uint8_t *longer = NULL;
  if (step->prefix && *text != ' ') {
    longer = malloc(bytes + 1);
    if (!longer) return attn_fail(ATTN_ENOMEM, "no memory for a text of %zu bytes", bytes);
    *longer = ' ';
    memcpy(longer + 1, text, bytes++);
    text = longer;
  }
  const attn_status status = step->cuts
                                 ? pattern_split(step->cuts, at->e->match, text, bytes, take_steps, &next)
                                 : take_steps(&next, text, bytes);
  free(longer);
  return status;
}

static attn_status encode_segment(encoder *e, const uint8_t *text, size_t bytes) {
  return take_steps(&(position){e, 0}, text, bytes);
}

static attn_status encode_normalised(encoder *e, const uint8_t *text, size_t bytes) {
  size_t length = 0;
  uint8_t *normal = NULL;
  if (e->t->nfc) {
    normal = u8_normalize(UNINORM_NFC, text, bytes, NULL, &length);
    if (!normal) return attn_fail(ATTN_ENOMEM, "no memory to normalise a text of %zu bytes", bytes);
  }
  const attn_status status =
      encoder_cut(e, &e->t->normalised, normal ? normal : text, normal ? length : bytes, encode_segment);
  free(normal);
  return status;
}

static attn_status encode(encoder *e, const uint8_t *text, size_t bytes) {
  return encoder_cut(e, &e->t->plain, text, bytes, encode_normalised);
}

/* ---- decoding ------------------------------------------------------------------------------------------ */

/* A text with a character outside the alphabet is decoded to itself. */
static attn_status decode(const data_tokenizer *t, const token *from, void *to) {
  char plain[TOKEN_BYTES_MAX];
  size_t used = 0;
  (void)t;
  for (uint32_t i = 0; from->kind != TOKEN_LITERAL && i < from->bytes; used++) {
    const uint8_t *at = (const uint8_t *)from->text + i;
    const int byte = *at < 0x80             ? byte_of(*at)
                     : (*at & 0xe0) == 0xc0 ? byte_of((*at & 31U) << 6 | (at[1] & 63U))
                                            : -1;
    if (byte < 0) return decoder_put(to, from->text, from->bytes);
    plain[used] = (char)byte;
    i += *at < 0x80 ? 1 : 2;
  }
  return used ? decoder_put(to, plain, used) : decoder_put(to, from->text, from->bytes);
}

const tokenizer_kind byte_level = {encode, decode};
