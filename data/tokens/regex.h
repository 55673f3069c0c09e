/* regex.h - a regular expression that cuts a text into pieces, as tokenizer.json names it. Internal to
 * data/. */
#ifndef DATA_TOKENS_REGEX_H
#define DATA_TOKENS_REGEX_H

#include "attn.h"

typedef struct pattern pattern;
typedef struct pattern_work pattern_work;

/* where: the file and the key, for messages. EINVAL: not a regular expression; EUNSUPPORTED: one that this
 * program might read otherwise than its author. */
attn_status pattern_make(const char *where, const char *text, pattern **);
void pattern_free(pattern *);

/* What matching needs, for any pattern; one for each thread. */
attn_status pattern_work_make(pattern_work **);
void pattern_work_free(pattern_work *);

typedef attn_status pattern_piece(void *context, const uint8_t *at, size_t bytes, bool matched);

/* Whether a match may be empty. */
bool pattern_may_be_empty(const pattern *);

/* Gives the matches, and what lies between them, one after another: pieces that are not empty and make up the
 * text, which is valid UTF-8. EINVAL: the pattern takes too long on this text. */
attn_status pattern_split(const pattern *, pattern_work *, const uint8_t *text, size_t bytes, pattern_piece *,
                          void *context);

#endif
