/* dyadic.h - the parts of dyadic(X), for the forward and the backward pass. */
#ifndef ATTN_CORE_EXPRESSION_DYADIC_H
#define ATTN_CORE_EXPRESSION_DYADIC_H

#include "core/expression/expression_kinds.h"

/* Queries of the positions `first` to `end`, keys from `key` to `key_end`; exact: causal, on the diagonal. */
typedef struct dyadic_part {
  int64_t first, end, key, key_end;
  bool exact;
} dyadic_part;

typedef struct dyadic_shape {
  int64_t rows, keys, times;
  bool exact;
  const attn_plan *plan;
} dyadic_shape;

/* For n keys: a row and a column of parts a level, and those that the first query cuts. */
enum { DYADIC_SHAPES = 256 };

typedef struct dyadic {
  attn_problem problem; /* attn_problem_unrounded: parts are joined before they are rounded */
  bool rounded;         /* outputs are stored in another type */
  int64_t base, offset; /* position of the first query, or 0 */
  int64_t shape_count;
  dyadic_shape shapes[DYADIC_SHAPES];
  const attn_exemption *exempt;
  uint32_t caps;
  bool by_features;
  size_t work_size; /* the largest of the parts */
} dyadic;

/* The parts with queries, those on the diagonal before others of the same rows. */
typedef attn_status (*dyadic_visitor)(void *context, const dyadic_part *);
attn_status dyadic_visit(const dyadic *, dyadic_visitor, void *context);
const dyadic_shape *dyadic_shape_of(const dyadic *, const dyadic_part *);
/* Q, K and V of a part, and its kv_len, [batch], in `lengths`. */
attn_tensors dyadic_tensors(const dyadic *, const attn_call *, const dyadic_part *, int64_t *lengths);

/* dyadic_backward.c */
attn_status dyadic_backward_size(const void *state, const attn_context *, const attn_parts *, size_t *);
attn_status dyadic_backward(const void *state, const attn_call *, const attn_gradients *);

#endif
