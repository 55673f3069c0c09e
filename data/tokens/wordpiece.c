/* wordpiece.c - WordPiece as BERT applies it (Devlin et al. 2019, arXiv:1810.04805; google-research/bert,
 * tokenization.py): the longest token that begins a word, then the longest with the prefix that begins the
 * rest, and so on; a word of which a rest begins with none is unknown, as is one that is too long. */
#include <unistr.h>

#include "data/tokens/tokenizer.h"

attn_status wordpiece_encode(encoder *e, const uint8_t *text, size_t bytes) {
  const data_tokenizer *t = e->t;
  const size_t before = e->count;
  attn_status status = ATTN_OK;
  if (u8_mbsnlen(text, bytes) > (size_t)t->characters) return encoder_put_unknown(e, text, bytes);
  for (size_t at = 0; !status && at < bytes;) {
    const token *found = literals_longest(at ? &t->continued : &t->pieces, text + at, bytes - at);
    if (!found) {
      e->count = before;
      return encoder_put_unknown(e, text, bytes);
    }
    status = encoder_put(e, found->id);
    at += found->bytes;
  }
  return status;
}
