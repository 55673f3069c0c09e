/* literals.h - tokens that a text is cut at before anything else: the text contains them literally. Internal
 * to data/. */
#ifndef DATA_TOKENS_LITERALS_H
#define DATA_TOKENS_LITERALS_H

#include "data/tokens/vocabulary.h"

typedef struct literals {
  token *item; /* in the order of their bytes; the texts are the vocabulary's */
  size_t count;
  size_t first[257]; /* those that begin with byte b are first[b] .. first[b + 1] */
} literals;

/* Sorts items, which it then owns; none is empty. */
void literals_make(literals *, token *items, size_t count);
void literals_free(literals *);

/* The first place at or after `from` where one begins, and the longest that does; NULL: there is none. */
const token *literals_find(const literals *, const uint8_t *text, size_t bytes, size_t from, size_t *place);

#endif
