/* part_output.h - attention by a part of an expression, with the tensors of a run: what the checks of sums
 * and of dyadic compute the whole from. */
#ifndef EXPERIMENTS_CHECKS_EXPRESSIONS_PART_OUTPUT_H
#define EXPERIMENTS_CHECKS_EXPRESSIONS_PART_OUTPUT_H

#include "core/expression/attn_expression.h"
#include "experiments/checks/check.h"

/* Queries first ... first + rows - 1 against keys key ... key + keys - 1. */
typedef struct part_request {
  const attn_expression *term; /* NULL: exact attention */
  int64_t first, rows, key, keys;
  bool causal;
} part_request;

/* The run's extra tensors are given to a part of all its queries and keys. o: [batch, heads, rows, d_v],
 * packed; lse: [batch, heads, rows], or NULL. The plan has the options of the run's. */
attn_status part_compute(const evidence *, const part_request *, void *o, double *lse);

/* What a whole output of the run may be off by: element at of [batch, heads, n_q, d_v] against want within
 * bound. */
typedef struct part_finding {
  double worst; /* largest of |o - want| / bound; Inf where one of the two is not finite alone */
  int64_t at;
} part_finding;
void part_compare(part_finding *, const evidence *, int64_t at, double want, double bound);
/* The bound's cell: bound_hard of worst against 1, with the place. */
attn_status part_settle(const part_finding *, const evidence *, result_bound *);

#endif
