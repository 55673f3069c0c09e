/* expression_kinds.c - the functions of variants that are expressions, by the kind of expression. */
#include "core/expression/expression_kinds.h"

#include <stdio.h>

static const expression_kind *kind_of(const attn_context *c) {
  static const expression_kind *const kinds[] = {[ATTN_EXPRESSION_ATOM] = &expression_inner,
                                                 [ATTN_EXPRESSION_JOIN] = &expression_join,
                                                 [ATTN_EXPRESSION_SUM] = &expression_sum,
                                                 [ATTN_EXPRESSION_DYADIC] = &expression_dyadic_run,
                                                 [ATTN_EXPRESSION_STORED] = &expression_stored};
  const attn_expression *e = c->expression;
  if (e->kind == ATTN_EXPRESSION_ATOM && expression_restricts(e)) return &expression_join;
  return kinds[e->kind];
}

attn_status attn_expression_applicable(const attn_context *c) {
  if (!c || !c->expression) return attn_null("expression", "context");
  const attn_status status = kind_of(c)->size(c, NULL, NULL);
  if (!status || !c->variant->expression) return status;
  /* A position in the expression behind a name means nothing to a reader who wrote only the name. */
  char reason[512];
  snprintf(reason, sizeof reason, "%s", attn_last_error());
  return attn_fail(status, "variant %s: %s", c->variant->name, reason);
}

attn_status attn_expression_describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  if (!c || !c->expression) return attn_null("expression", "context");
  if (!out) return attn_null("expression", "parts");
  const expression_kind *kind = kind_of(c);
  if (kind->describe) return kind->describe(b, c, out);
  out->method = &kind->method;
  return ATTN_OK;
}

attn_status expression_work_size(const attn_context *c, const attn_parts *p, size_t *bytes) {
  (void)p;
  return kind_of(c)->size(c, bytes, NULL);
}

attn_cost attn_expression_cost(const attn_context *c) {
  attn_cost cost = {0};
  if (c && c->expression && kind_of(c)->size(c, NULL, &cost)) return (attn_cost){0};
  return cost;
}

/* -- what the kinds share -- */

attn_status expression_plan_term(attn_builder *b, const attn_problem *p, const attn_expression *term,
                                 const attn_plan **out) {
  attn_spec *spec = NULL;
  attn_status status = attn_spec_at(term, &spec);
  if (!status) status = attn_builder_plan_spec(b, p, spec, out);
  attn_spec_destroy(spec);
  return status;
}

attn_status expression_size_term(const attn_context *c, const attn_problem *p, const attn_expression *term,
                                 size_t *work_size, attn_cost *cost) {
  attn_spec *spec = NULL;
  attn_status status = attn_spec_at(term, &spec);
  if (!status) status = attn_context_estimate_spec(c, p, spec, work_size, cost);
  attn_spec_destroy(spec);
  return status;
}

attn_problem expression_packed(const attn_problem *p) {
  attn_problem packed = *p;
  packed.o = (attn_stride){0};
  return packed;
}

void expression_add_cost(attn_cost *to, attn_cost more, double times) {
  to->mul_add += times * more.mul_add;
  to->exp += times * more.exp;
  to->bytes += times * more.bytes;
}
