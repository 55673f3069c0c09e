/* plan_call.c - executions of a plan: their arguments, and what they are verified by. */
#include "core/plan/plan.h"
#include "core/plan/verify.h"

#include <string.h>

/* Strictly ascending positions of the keys that exist, of each kv head that has its own. */
static attn_status check_key_positions(const attn_problem *p, const attn_call *call) {
  const attn_key_positions *k = &call->k_position;
  if (k->batch < 0 || k->head < 0) return attn_fail(ATTN_EINVAL, "execute: k_position: negative stride");
  for (int64_t line = 0; line < p->batch * p->kv_heads; line++) {
    const int64_t b = line / p->kv_heads, h = line % p->kv_heads, keys = attn_call_keys(call, b),
                  *at = k->at + b * k->batch + h * k->head;
    for (int64_t j = 0; j < (h && !k->head ? 0 : keys); j++)
      if (at[j] < (j ? at[j - 1] + 1 : 0) || at[j] >= p->n_kv)
        return attn_fail(ATTN_EINVAL,
                         "execute: k_position of key %lld (batch entry %lld, kv head %lld) = %lld, expected "
                         "ascending positions in 0 ... n_kv - 1 = %lld",
                         (long long)j, (long long)b, (long long)h, (long long)at[j],
                         (long long)(p->n_kv - 1));
  }
  return ATTN_OK;
}

static attn_status check_positions(const attn_plan *plan, const attn_call *call) {
  const attn_problem *p = &plan->problem;
  const int64_t *q = call->q_position;
  attn_view view;
  if (!attn_call_placed(call)) return ATTN_OK;
  const attn_status status = attn_plan_inspect(plan, &view);
  if (status) return status;
  if (!(view.caps & ATTN_CAP_POSITIONS))
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: positions of queries and keys are not supported%s",
                     plan->spec->variant->name,
                     plan->spec->variant->caps & ATTN_CAP_POSITIONS ? " with these parameters and this mask"
                                                                    : "");
  for (int64_t b = 0; q && b < p->batch; b++)
    if (q[b] < 0 || q[b] > p->n_kv - p->n_q)
      return attn_fail(ATTN_EINVAL, "execute: q_position[%lld] = %lld, expected 0 ... n_kv - n_q = %lld",
                       (long long)b, (long long)q[b], (long long)(p->n_kv - p->n_q));
  return call->k_position.at ? check_key_positions(p, call) : ATTN_OK;
}

attn_status plan_check_call(const attn_plan *plan, const attn_call *call, size_t work_size) {
  const attn_variant *variant = plan->spec->variant;
  const attn_problem *p = &plan->problem;
  const int64_t *kv_len = call->kv_len;
  if (!call->q) return attn_null("execute", "q");
  if (!call->k) return attn_null("execute", "k");
  if (!call->v) return attn_null("execute", "v");
  if (!call->o) return attn_null("execute", "o");
  if (!call->work && work_size)
    return attn_fail(ATTN_EINVAL, "execute: work must not be NULL, %zu bytes of it are needed", work_size);
  if (call->lse && !(variant->caps & ATTN_CAP_LSE))
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: gives no log-sum-exp", variant->name);
  if ((call->state || call->state_after) && !attn_plan_state_size(plan))
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: it carries no state", variant->name);
  for (int64_t b = 0; kv_len && b < p->batch; b++) {
    if (kv_len[b] < 0 || kv_len[b] > p->n_kv)
      return attn_fail(ATTN_EINVAL, "execute: kv_len[%lld] = %lld, expected 0 ... %lld", (long long)b,
                       (long long)kv_len[b], (long long)p->n_kv);
    if (kv_len[b] < p->n_kv && !(variant->caps & ATTN_CAP_PADDING))
      return attn_fail(ATTN_EUNSUPPORTED, "variant %s: key padding is not supported", variant->name);
  }
  attn_status status = check_positions(plan, call);
  if (!status)
    status = attn_extras_check(
        plan->parts.pooling.index.heads ? &plan->parts.pooling.index : &plan->parts.selector.index, call);
  return status ? status : attn_threads_enter(call->context->threads);
}

attn_call plan_call(const attn_context *c, const attn_tensors *x) {
  return (attn_call){.context = c,
                     .q = x->q,
                     .k = x->k,
                     .v = x->v,
                     .kv_len = x->kv_len,
                     .q_position = x->q_position,
                     .k_position = x->k_position,
                     .o = x->o,
                     .work = x->work,
                     .lse = x->lse,
                     .stages = x->stages,
                     .extra = x->extra,
                     .extras = x->extras,
                     .state = x->state,
                     .state_after = x->state_after};
}

static attn_status execute(const attn_plan *plan, attn_call call) {
  attn_status status = plan_check_call(plan, &call, plan->work_size);
  if (status) return status;
  call.work = plan_align(call.work);
  fenv_t outer;
  attn_float_enter(&outer);
  status = plan->parts.method->execute(plan->state, &call);
  attn_float_leave(&outer);
  return status;
}

attn_status attn_plan_run(const attn_plan *plan, const attn_tensors *x) {
  if (!plan) return attn_null("execute", "plan");
  if (!x) return attn_null("execute", "tensors");
  if (x->stages) *x->stages = (attn_stages){0};
  return execute(plan, plan_call(&plan->context, x));
}

attn_status attn_plan_execute(const attn_plan *plan, const void *q, const void *k, const void *v,
                              const int64_t *kv_len, void *o, void *work) {
  return attn_plan_run(plan, &(attn_tensors){.q = q, .k = k, .v = v, .kv_len = kv_len, .o = o, .work = work});
}

attn_status attn_plan_execute_lse(const attn_plan *plan, const void *q, const void *k, const void *v,
                                  const int64_t *kv_len, void *o, double *lse, void *work) {
  if (plan && !lse) return attn_null("execute", "lse");
  return attn_plan_run(
      plan, &(attn_tensors){.q = q, .k = k, .v = v, .kv_len = kv_len, .o = o, .lse = lse, .work = work});
}

attn_call plan_inner_call(const attn_call *outer, const attn_plan *plan, void *o, double *lse, void *work) {
  attn_call call = *outer;
  call.context = &plan->context;
  call.o = o;
  call.lse = lse;
  call.work = work;
  call.guards = NULL;
  return call;
}

attn_status attn_call_run(const attn_call *outer, const attn_plan *plan, void *o, double *lse, void *work) {
  if (!outer) return attn_null("execute", "call");
  if (!plan) return attn_null("execute", "plan");
  return execute(plan, plan_inner_call(outer, plan, o, lse, work));
}

/* The context of attn_plan_verify, and the size of its work memory: of the variant's, and with its
 * margins. */
static attn_status verify_context(const attn_plan *plan, attn_context *c, size_t *inside, size_t *all) {
  size_t bytes = 0;
  *c = plan->context;
  c->verify = true;
  attn_status status = plan_work_size(c, &plan->parts, &bytes);
  if (status) return status;
  *inside = bytes ? bytes - PLAN_ALIGNMENT : 0;
  *all = bytes ? attn_size_sum(bytes, 2 * (size_t)VERIFY_MARGIN) : 0;
  return ATTN_OK;
}

size_t attn_plan_verify_size(const attn_plan *plan) {
  attn_context context;
  size_t inside, all;
  if (!plan) return 0;
  return verify_context(plan, &context, &inside, &all) ? SIZE_MAX : all;
}

attn_status attn_plan_verify(const attn_plan *plan, const attn_tensors *x) {
  attn_context context;
  attn_view view;
  size_t inside, all;
  if (!plan) return attn_null("verify", "plan");
  if (!x) return attn_null("verify", "tensors");
  const attn_variant *variant = plan->spec->variant;
  attn_call call = plan_call(&context, x);
  attn_status status = verify_context(plan, &context, &inside, &all);
  if (!status) status = plan_check_call(plan, &call, all);
  if (!status) status = attn_plan_inspect(plan, &view);
  if (status) return status;
  fenv_t outer;
  attn_float_enter(&outer);
  call.work = plan_align(x->work);
  if (view.pattern) status = attn_pattern_verify(variant->name, view.pattern, &plan->problem);
  if (!status) status = attn_verify_execute(plan->parts.method, plan->state, &call, inside);
  attn_float_leave(&outer);
  return status;
}
