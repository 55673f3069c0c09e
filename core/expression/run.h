/* run.h - how each kind of expression is planned and executed. */
#ifndef ATTN_CORE_EXPRESSION_RUN_H
#define ATTN_CORE_EXPRESSION_RUN_H

#include "core/expression/expression.h"

/* e: that of the context. Either result of size may be NULL. */
typedef struct expression_kind {
  attn_status (*plan)(attn_builder *, const attn_expression *e, void **state);
  attn_status (*execute)(const void *state, const attn_call *);
  void (*inspect)(const void *state, const attn_context *, attn_view *);
  attn_status (*size)(const attn_context *, const attn_expression *e, size_t *work_size, attn_cost *);
} expression_kind;
extern const expression_kind expression_inner; /* the plan of an atom */
/* rest: a join whose last term is features. */
extern const expression_kind expression_join, expression_rest, expression_sum, expression_dyadic_run;

/* The plan of a term, and its size and cost; either may be NULL. */
attn_status expression_plan_term(attn_builder *, const attn_problem *, const attn_expression *,
                                 const attn_plan **);
attn_status expression_size_term(const attn_context *, const attn_problem *, const attn_expression *,
                                 size_t *work_size, attn_cost *);

/* The problem with a packed result, [batch, heads, n_q, d_v]. */
attn_problem expression_packed(const attn_problem *);
void expression_add_cost(attn_cost *, attn_cost, double times);
/* Lists of exemptions as one, in the plan's memory; NULL if they are empty. */
attn_status expression_exempt(attn_builder *, const attn_exemption *const *lists, int64_t count,
                              const attn_exemption **);

#endif
