/* characters.c - characters by libunistring's tables (Unicode 14). The sets are those of `tokenizers`, which
 * has BERT's from google-research/bert (tokenization.py) and Nmt's from SentencePiece
 * (nmt_nfkc in builder.cc). */
#include "data/tokens/characters.h"

#include <unicase.h>
#include <unictype.h>

typedef struct range {
  uint32_t first, last;
} range;

static bool is_among(uint32_t c, const range *r) {
  while (r->last && (c < r->first || c > r->last)) r++;
  return r->last != 0;
}

static bool has_category(uint32_t c, uint32_t mask) { return uc_is_general_category_withtable(c, mask); }

bool character_is_space(uint32_t c) { return uc_is_property_white_space(c); }

bool character_is_word(uint32_t c) {
  return uc_is_property_alphabetic(c) || uc_is_property_join_control(c) ||
         has_category(c, UC_CATEGORY_MASK_M | UC_CATEGORY_MASK_Nd | UC_CATEGORY_MASK_Pc);
}

static size_t keep(bool kept, uint32_t c, uint32_t out[CHARACTERS_MOST]) {
  out[0] = c;
  return kept;
}

size_t character_lower(uint32_t c, uint32_t out[CHARACTERS_MOST]) {
  if (c == 0x130) { /* the only one that becomes two, SpecialCasing.txt */
    out[0] = 'i';
    out[1] = 0x307;
    return 2;
  }
  return keep(true, uc_tolower(c), out);
}

size_t character_without_marks(uint32_t c, uint32_t out[CHARACTERS_MOST]) {
  return keep(!has_category(c, UC_CATEGORY_MASK_M), c, out);
}

size_t character_without_accents(uint32_t c, uint32_t out[CHARACTERS_MOST]) {
  return keep(!has_category(c, UC_CATEGORY_MASK_Mn), c, out);
}

size_t character_nmt(uint32_t c, uint32_t out[CHARACTERS_MOST]) {
  static const range dropped[] = {{1, 8},       {0xb, 0xb},   {0xe, 0x1f}, {0x7f, 0x7f},
                                  {0x8f, 0x8f}, {0x9f, 0x9f}, {0, 0}};
  static const range blanks[] = {{9, 0xa},         {0xc, 0xd},       {0x1680, 0x1680},
                                 {0x200b, 0x200f}, {0x2028, 0x2029}, {0x2581, 0x2581},
                                 {0xfeff, 0xfeff}, {0xfffd, 0xfffd}, {0, 0}};
  return keep(!is_among(c, dropped), is_among(c, blanks) ? ' ' : c, out);
}

size_t character_clean(uint32_t c, uint32_t out[CHARACTERS_MOST]) {
  const bool control =
      has_category(c, UC_CATEGORY_MASK_Cc | UC_CATEGORY_MASK_Cf | UC_CATEGORY_MASK_Co | UC_CATEGORY_MASK_Cs);
  const bool kept = c == '\t' || c == '\n' || c == '\r' || !(control || c == 0xfffd);
  return keep(kept, character_is_space(c) ? ' ' : c, out);
}

size_t character_apart(uint32_t c, uint32_t out[CHARACTERS_MOST]) {
  /* The fourth of the last six begins 0x100 late in `tokenizers`. */
  static const range ideographs[] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                     {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                     {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}, {0, 0}};
  if (!is_among(c, ideographs)) return keep(true, c, out);
  out[0] = out[2] = ' ';
  out[1] = c;
  return 3;
}
