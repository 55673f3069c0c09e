/* join.c - joins. */
#include "core/expression/run.h"

static attn_status plan(attn_builder *b, const attn_expression *e, void **state) {
  (void)b, (void)state;
  return expression_refuse_part(ATTN_EUNSUPPORTED, e, "joins are not made yet");
}
static attn_status execute(const void *state, const attn_call *call) {
  return attn_no_state(call->context, state);
}
static void inspect(const void *state, const attn_context *c, attn_view *view) {
  (void)state, (void)c, (void)view;
}
static attn_status size(const attn_context *c, const attn_expression *e, size_t *work_size, attn_cost *cost) {
  (void)c, (void)work_size, (void)cost;
  return expression_refuse_part(ATTN_EUNSUPPORTED, e, "joins are not made yet");
}
const expression_kind expression_join = {plan, execute, inspect, size};
