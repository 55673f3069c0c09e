/* rest.c - a join whose last term is features: the terms before it are a head of exact keys, and the features stand for
 * the keys that remain (core/engines/linear/residual.c). A head that is one pattern is attended to as one. */
#include "core/expression/join.h"
#include "core/expression/run.h"

#include <stdio.h>

typedef struct rest {
  join join;
  void *engine;
} rest;

static attn_residual parts_of(const join *x) {
  const bool pattern = x->count == 1 && x->terms[0].kind == TERM_PATTERN;
  return (attn_residual){.pattern = pattern ? &x->terms[0].pattern : NULL,
                         .selector = pattern ? NULL : &x->selector,
                         .features = &x->terms[x->count].features};
}

/* What the engine refuses, at the place of the features. */
static attn_status refuse(const join *x, attn_status status) {
  char why[400];
  if (status == ATTN_ENOMEM) return status;
  snprintf(why, sizeof why, "%s", attn_last_error());
  return expression_refuse_part(status, x->terms[x->count].of, why);
}

static attn_status plan(attn_builder *b, const attn_expression *e, void **state) {
  rest *r = attn_builder_alloc(b, 1, sizeof *r);
  attn_status status = r ? join_plan(b, e, &r->join) : ATTN_ENOMEM;
  if (status) return status;
  const attn_residual parts = parts_of(&r->join);
  status = attn_residual_plan(b, &parts, &r->engine);
  *state = r;
  return status;
}

static attn_status execute(const void *state, const attn_call *call) {
  return attn_residual_execute(((const rest *)state)->engine, call);
}

static void inspect(const void *state, const attn_context *c, attn_view *view) {
  const rest *r = state;
  attn_residual_inspect(r->engine, c, view);
  view->caps &= r->join.caps;
  if (!r->join.selector.every) view->caps &= ~(uint32_t)ATTN_CAP_EXACT;
  view->exempt = r->join.exempt;
}

static attn_status size(const attn_context *c, const attn_expression *e, size_t *work_size, attn_cost *cost) {
  join x;
  attn_status status = join_measure(c, e, &x);
  if (status) return status;
  const attn_residual parts = parts_of(&x);
  if (work_size && (*work_size = attn_residual_work_size(c, &parts)) == SIZE_MAX)
    return refuse(&x, attn_last_status());
  if (!cost) return ATTN_OK;
  const attn_context *of = &x.terms[x.count].context;
  join_cost(c, &x, cost);
  /* The head takes an exponential a pair. */
  const double pairs = cost->exp / (double)(c->problem->batch * c->problem->heads),
               visible = attn_visible_pairs(c->problem);
  expression_add_cost(cost, attn_residual_cost(c, parts.features, pairs < visible ? pairs : visible), 1);
  expression_add_cost(cost, of->variant->cost(of), 1);
  return ATTN_OK;
}

const expression_kind expression_rest = {plan, execute, inspect, size};
