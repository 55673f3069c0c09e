/* plan_backward.c - backward passes of a plan: their memory and their arguments. */
#include "core/plan/plan.h"

#include <string.h>

attn_status attn_plan_backward_size(const attn_plan *plan, size_t *bytes) {
  if (!plan) return attn_null("backward", "plan");
  if (!bytes) return attn_null("backward", "bytes");
  const attn_method *method = plan->parts.method;
  const char *name = plan->spec->variant->name;
  size_t inside = 0;
  attn_status status = method->backward_size
                           ? method->backward_size(plan->state, &plan->context, &plan->parts, &inside)
                           : ATTN_OK;
  if (!status && !(method->backward_size && method->backward))
    status =
        attn_fail(ATTN_EUNSUPPORTED, "variant %s: no gradient%s%s", name, method->no_gradient ? ": " : "",
                  method->no_gradient ? method->no_gradient : " is written of it");
  if (status) return status;
  if (inside > PTRDIFF_MAX - PLAN_ALIGNMENT)
    return attn_fail(ATTN_EINVAL, "variant %s: the size of the backward pass's memory overflows", name);
  *bytes = inside ? inside + PLAN_ALIGNMENT : 0;
  return ATTN_OK;
}

attn_status attn_plan_backward_most(const attn_plan *plan, size_t *bytes) {
  size_t own = 0;
  const attn_status status = attn_plan_backward_size(plan, &own);
  if (own > *bytes) *bytes = own;
  return status;
}

/* Writes zeros to what is added to. */
static void clear_sums(const attn_call *call, const attn_gradients *g) {
  for (int64_t i = 0; i < call->extras && g->dextra; i++) {
    const attn_extra *of = &call->extra[i];
    if (g->dextra[i])
      memset(g->dextra[i], 0, (size_t)(of->batch * of->heads * of->n * of->columns) * sizeof(double));
  }
  attn_biases_clear(call->context->problem, g);
}

/* outer: not within another variant's. */
static attn_status backward(const attn_plan *plan, attn_call call, const attn_gradients *g, bool outer) {
  size_t bytes = 0;
  attn_gradients of = *g;
  attn_status status = attn_plan_backward_size(plan, &bytes);
  if (!status) status = plan_check_call(plan, &call, bytes);
  if (!status && !call.lse && plan->spec->variant->caps & ATTN_CAP_LSE) status = attn_null("backward", "lse");
  if (!status && of.dlse && !(plan->spec->variant->caps & ATTN_CAP_LSE))
    status = attn_fail(ATTN_EUNSUPPORTED, "variant %s: gives no log-sum-exp", plan->spec->variant->name);
  if (!status) status = attn_gradient_stride(&plan->problem, &of.d_o_at);
  if (!status) status = attn_biases_check(&plan->problem, g);
  if (!status && attn_biases_wanted(g) && !plan->parts.method->bias_gradients)
    status = attn_fail(ATTN_EUNSUPPORTED, "variant %s: no gradient by biases", plan->spec->variant->name);
  if (status) return status;
  if (outer) clear_sums(&call, g);
  call.work = plan_align(call.work);
  fenv_t caller;
  attn_float_enter(&caller);
  status = plan->parts.method->backward(plan->state, &call, &of);
  attn_float_leave(&caller);
  return status;
}

attn_status attn_plan_backward(const attn_plan *plan, const attn_tensors *x, const attn_gradients *g) {
  if (!plan) return attn_null("backward", "plan");
  if (!x) return attn_null("backward", "tensors");
  if (!g) return attn_null("backward", "gradients");
  if (!g->d_o) return attn_null("backward", "d_o");
  return backward(plan, plan_call(&plan->context, x), g, true);
}

attn_status attn_call_backward(const attn_call *outer, const attn_plan *plan, void *o, double *lse,
                               const attn_gradients *g, void *work) {
  if (!outer) return attn_null("backward", "call");
  if (!plan) return attn_null("backward", "plan");
  if (!g) return attn_null("backward", "gradients");
  if (!g->d_o) return attn_null("backward", "d_o");
  return backward(plan, plan_inner_call(outer, plan, o, lse, work), g, false);
}
