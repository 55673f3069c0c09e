/* expression_kinds.h - how each kind of expression is made: of parts that an engine takes, or by plans of its
 * terms. */
#ifndef ATTN_CORE_EXPRESSION_EXPRESSION_KINDS_H
#define ATTN_CORE_EXPRESSION_EXPRESSION_KINDS_H

#include "core/expression/expression.h"

/* The expression is that of the context. */
typedef struct expression_kind {
  /* Of a join, and of what is stored, its parts; NULL: they are the method, whose work_size is
   * expression_work_size. */
  attn_status (*describe)(attn_builder *, const attn_context *, attn_parts *);
  attn_method method;
  attn_status (*size)(const attn_context *, size_t *work_size, attn_cost *); /* either result may be NULL */
} expression_kind;
extern const expression_kind expression_inner; /* the plan of an atom */
extern const expression_kind expression_join, expression_sum, expression_dyadic_run, expression_stored;
attn_status expression_work_size(const attn_context *, const attn_parts *, size_t *);

/* The plan of a term, and its size and cost; either may be NULL. */
attn_status expression_plan_term(attn_builder *, const attn_problem *, const attn_expression *,
                                 const attn_plan **);
attn_status expression_size_term(const attn_context *, const attn_problem *, const attn_expression *,
                                 size_t *work_size, attn_cost *);

/* The problem with a packed result, [batch, heads, n_q, d_v]. */
attn_problem expression_packed(const attn_problem *);
void expression_add_cost(attn_cost *, attn_cost, double times);

#endif
