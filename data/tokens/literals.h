/* literals.h - sorted tokens, found where they begin: those that a text is cut at before anything else, and
 * the pieces of WordPiece and Unigram. Internal to data/. */
#ifndef DATA_TOKENS_LITERALS_H
#define DATA_TOKENS_LITERALS_H

#include "data/tokens/vocabulary.h"

typedef struct literals {
  token *item; /* in the order of their bytes; the texts are the vocabulary's */
  size_t count;
  size_t first[257]; /* those that begin with byte b are first[b] .. first[b + 1] */
} literals;

/* Sorts items, which it then owns; none is empty, and no two have the same text. */
void literals_make(literals *, token *items, size_t count);
void literals_free(literals *);

/* One token after another that begins a text, the shortest first. */
typedef struct literals_walk {
  const literals *in;
  size_t begin, end, depth;
} literals_walk;

literals_walk literals_walk_begin(const literals *, const uint8_t *text, size_t bytes);
const token *literals_next(literals_walk *, const uint8_t *text, size_t bytes); /* NULL: there is no other */

/* The longest that begins the text; NULL: there is none. */
const token *literals_longest(const literals *, const uint8_t *text, size_t bytes);

/* The first place at or after `from` where one begins, and the longest that does; NULL: there is none. */
const token *literals_find(const literals *, const uint8_t *text, size_t bytes, size_t from, size_t *place);

#endif
