/* term.h - a term of a join: which keys it takes of those that a query sees. */
#ifndef ATTN_CORE_EXPRESSION_TERM_H
#define ATTN_CORE_EXPRESSION_TERM_H

#include "core/expression/expression.h"
#include "core/expression/runs.h"

/* TERM_FEATURES: it takes what remains, and can only be the last. */
typedef enum { TERM_EVERY, TERM_PATTERN, TERM_SELECTOR, TERM_FEATURES } term_kind;

/* The parts of a variant, and its own context, where their functions find its parameters. */
typedef struct term {
  term_kind kind;
  const attn_expression *of;
  attn_context context;
  int64_t max_runs; /* of step 1, of a query */
  attn_pattern pattern;
  attn_selector selector;
  attn_feature_map features;
  uint32_t caps;
  const attn_exemption *exempt;
} term;

/* As attn_variant.describe. EUNSUPPORTED, with its place in the expression: the problem is not for it, or its
 * keys cannot be told. */
attn_status term_describe(attn_builder *outer, const attn_context *, const attn_expression *atom, term *);

/* The call as the term's functions want it, whose context is kept in `own`. */
attn_call term_call(const term *, const attn_call *outer, attn_context *own);

/* A request to a term: queries[0 .. count) of a head, in the term's own blocks unless it shares a selection
 * by the asker's block. owned: the keys of other terms, or NULL. */
typedef struct term_request {
  const attn_call *call;
  const attn_block *block;
  const int64_t *order; /* of the queries; NULL: as they come */
  const void *prepared;
  const attn_picks *owned;
  attn_run *raw; /* room for the runs of a pattern */
  void *scratch;
} term_request;
/* Query i of the block. */
static inline int64_t term_query(const term_request *x, int64_t i) {
  return x->order ? x->order[x->block->first + i] : x->block->first + i;
}
/* Writes a selection a query, or one for all. */
void term_select(const term *, const term_request *, attn_picks *);
/* Is there one selection for all queries of a block? */
static inline bool term_shares(const term *t) {
  return t->kind == TERM_SELECTOR && t->selector.share == ATTN_SHARE_TILE;
}

#endif
