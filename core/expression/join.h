/* join.h - a join: terms that take their keys one after the other, attended to in one pass. */
#ifndef ATTN_CORE_EXPRESSION_JOIN_H
#define ATTN_CORE_EXPRESSION_JOIN_H

#include "core/expression/term.h"

/* The state of its selector, in the plan's memory. The terms except the last are its head, which is taken as
 * it is; the last may have weights. features: they take what remains, and are one more term, terms[count]. */
typedef struct join {
  int64_t count;
  bool features;
  term terms[EXPRESSION_ATOMS];
  attn_selector selector;
  const attn_exemption *exempt;
  uint32_t caps;
} join;

/* Where a term's part of what is prepared begins. */
size_t join_prepared_offset(const join *, int64_t before);
/* Prepares a kv head for the terms before this one. */
void join_prepare(const join *, const attn_call *, int64_t batch, int64_t kv_head, int64_t terms,
                  void *prepared, void *scratch);
/* The keys that terms before this one take of the block, [selections][selector.max_runs], to `out`. */
void join_select(const join *, const attn_call *, const attn_block *, const void *prepared, int64_t terms,
                 attn_picks *out, void *scratch);

/* join_law.c: the law of the join, of the laws of its terms. */
void join_state_law(join *);

#endif
