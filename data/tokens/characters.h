/* characters.h - what tokenizers ask of a character, and what they make of it. Internal to data/. */
#ifndef DATA_TOKENS_CHARACTERS_H
#define DATA_TOKENS_CHARACTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHARACTERS_MOST = 3 };

/* Writes the characters that stand for c; returns how many, 0 if c is dropped. */
typedef size_t character_map(uint32_t c, uint32_t out[CHARACTERS_MOST]);

size_t character_lower(uint32_t c, uint32_t out[CHARACTERS_MOST]);
size_t character_without_marks(uint32_t c, uint32_t out[CHARACTERS_MOST]);
size_t character_without_accents(uint32_t c, uint32_t out[CHARACTERS_MOST]); /* marks that take no room */
size_t character_nmt(uint32_t c, uint32_t out[CHARACTERS_MOST]);
/* BERT's: controls dropped and white space a blank; blanks around ideographs. */
size_t character_clean(uint32_t c, uint32_t out[CHARACTERS_MOST]);
size_t character_apart(uint32_t c, uint32_t out[CHARACTERS_MOST]);

bool character_is_space(uint32_t c);
/* \w of Unicode's regular expressions (UTS 18, annex C). */
bool character_is_word(uint32_t c);

#endif
