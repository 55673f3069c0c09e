/* merge_pairs.h - byte pair encoding of one text (Sennrich, Haddow, Birch 2016, arXiv:1508.07909): of all
 * neighbours that may merge, those of the least rank do, the leftmost first, until none may. Internal to
 * data/. */
#ifndef DATA_TOKENS_MERGE_PAIRS_H
#define DATA_TOKENS_MERGE_PAIRS_H

#include "attn.h"

enum { MERGE_BYTES_MAX = 1 << 29 }; /* of a text: three entries for each have numbers of 32 bits */

typedef struct merge_symbol {
  uint32_t begin; /* it ends where the next one begins */
  int32_t id;     /* the caller's; a rule gives that of a merged symbol */
  int32_t previous, next;
} merge_symbol;

/* Whether two neighbours merge, into what and of which rank. end: of the right one. */
typedef bool merge_rule(const void *context, const merge_symbol *left, const merge_symbol *right,
                        uint32_t end, uint32_t *rank, int32_t *id);

typedef struct merge_work {
  merge_symbol *symbol;
  size_t capacity; /* symbols */
  struct merge_entry *entry;
  struct merge_turn *turn;
  struct merge_place *place;
  int32_t *bucket; /* by rank */
  size_t ranks, entries, turns;
} merge_work;

/* Makes room for a text of `count` symbols, whose ranks are below `ranks`; always the same for one work.
 * ENOMEM, recorded. */
attn_status merge_reserve(merge_work *, size_t count, size_t ranks);
void merge_free(merge_work *);

/* Merges `count` symbols, whose begin and id are set, of a text of `bytes` bytes; O(count log count).
 * Afterwards symbol 0 is the first, next leads to the others, and that of the last is -1. */
void merge_run(merge_work *, size_t count, uint32_t bytes, merge_rule *, const void *context);

/* Where symbol i ends. */
uint32_t merge_end(const merge_work *, int32_t i, uint32_t bytes);

#endif
