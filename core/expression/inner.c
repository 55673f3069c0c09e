/* inner.c - an expression that is another spec: a name for one variant. */
#include "core/expression/expression_kinds.h"

static attn_status plan(attn_builder *b, const attn_parts *parts, void **state) {
  const attn_plan *inner = NULL;
  attn_status status = expression_plan_term(b, b->context.problem, b->context.expression, &inner);
  (void)parts;
  *state = (void *)(uintptr_t)inner;
  return status;
}

static attn_status execute(const void *state, const attn_call *call) {
  const attn_plan *inner = state;
  attn_carver carver = attn_carver_at(call, call->work);
  void *work = attn_carve(&carver, 1, 1, attn_plan_work_size(inner));
  return attn_call_run(call, inner, call->o, call->lse, work);
}

static attn_status backward_size(const void *state, const attn_context *c, const attn_parts *parts,
                                 size_t *bytes) {
  size_t inside = 0;
  const attn_status status = attn_plan_backward_size(state, &inside);
  attn_carver carver = attn_carver_count(c);
  attn_carve(&carver, 1, 1, inside);
  (void)parts;
  *bytes = carver.used;
  return status;
}

static attn_status backward(const void *state, const attn_call *call, const attn_gradients *g) {
  return attn_call_backward(call, state, call->o, call->lse, g, call->work);
}

static void inspect(const void *state, const attn_context *c, attn_view *view) {
  attn_view inner;
  (void)c;
  if (attn_plan_inspect(state, &inner)) return;
  /* Other descriptors find parameters in their own context. */
  view->caps &= inner.caps;
  view->exempt = inner.exempt;
  view->pattern = inner.pattern;
  if (inner.pattern || inner.caps & ATTN_CAP_EXACT) view->rounding = inner.rounding;
}

static attn_status size(const attn_context *c, size_t *work_size, attn_cost *cost) {
  size_t bytes = 0;
  attn_carver carver = attn_carver_count(c);
  attn_status status = expression_size_term(c, c->problem, c->expression, &bytes, cost);
  attn_carve(&carver, 1, 1, bytes);
  if (!status && work_size) *work_size = carver.used;
  return status;
}

const expression_kind expression_inner = {.method = {.work_size = expression_work_size,
                                                     .plan = plan,
                                                     .execute = execute,
                                                     .inspect = inspect,
                                                     .backward_size = backward_size,
                                                     .backward = backward,
                                                     .bias_gradients = true},
                                          .size = size};
