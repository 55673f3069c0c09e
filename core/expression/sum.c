/* sum.c - gated sums: o = sum_t g_t o_t, each term a separate plan; the sum is rounded once per term. g_t is
 * a number, or one or d_v elements of the call's tensor "gate" for each head and query: the output gate G1 of
 * Gated Attention, Qiu et al. 2025 (arXiv:2505.06708); the tensor has it after its sigmoid. */
#include "core/expression/expression_kinds.h"

#include <math.h>

typedef struct sum {
  int64_t count;
  int64_t given;   /* gates of the call */
  int64_t *places; /* of a term among them; -1: its gate is a number */
  const double *gates;
  const attn_plan **plans;
  const attn_exemption *exempt;
  uint32_t caps;
  bool by_features;
  size_t work_size; /* the largest of the terms */
} sum;

typedef struct layout {
  void *o, *work; /* of the terms after the first; of any */
  void *sum;      /* where outputs are stored in another type: they are rounded once */
} layout;

static layout lay_out(const attn_problem *p, int64_t terms, size_t work_size, attn_carver *carver) {
  const int64_t lines = p->batch * p->heads * p->n_q;
  const size_t e = attn_dtype_size(p->dtype);
  return (layout){.o = attn_carve(carver, terms > 1 ? lines : 0, p->d_v, e),
                  .work = attn_carve(carver, 1, 1, work_size),
                  .sum = attn_carve(carver, p->o.stored ? lines : 0, p->d_v, e)};
}

/* The first term writes to the result itself. */
static attn_problem problem_of(const attn_problem *p, int64_t term) {
  return term ? expression_packed(p) : attn_problem_unrounded(p);
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **state) {
  const attn_expression *e = b->context.expression;
  const attn_problem *p = b->context.problem;
  sum *s = attn_builder_alloc(b, 1, sizeof *s);
  const attn_plan **plans = s ? attn_builder_alloc(b, e->count, sizeof *plans) : NULL;
  double *gates = plans ? attn_builder_alloc(b, e->count, sizeof *gates) : NULL;
  int64_t *places = gates ? attn_builder_alloc(b, e->count, sizeof *places) : NULL;
  const attn_exemption **lists = places ? attn_builder_scratch(b, e->count, sizeof *lists) : NULL;
  (void)parts;
  if (!lists) return ATTN_ENOMEM;
  *s = (sum){.count = e->count, .places = places, .gates = gates, .plans = plans, .caps = ~UINT32_C(0)};
  attn_status status = ATTN_OK;
  for (int64_t t = 0; t < e->count && !status; t++) {
    const attn_problem own = problem_of(p, t);
    attn_view view;
    gates[t] = e->terms[t]->gate;
    places[t] = e->terms[t]->given ? s->given++ : -1;
    status = expression_plan_term(b, &own, e->terms[t], &plans[t]);
    if (!status) status = attn_plan_inspect(plans[t], &view);
    if (status) break;
    lists[t] = view.exempt;
    s->caps &= view.caps | ATTN_CAP_DATA;
    s->by_features |= view.by_features;
    if (attn_plan_work_size(plans[t]) > s->work_size) s->work_size = attn_plan_work_size(plans[t]);
  }
  if (!status) status = attn_join_exemptions(b, lists, e->count, &s->exempt);
  if (!status) *state = s;
  return status;
}

static void *row_of(const attn_problem *p, void *o, int64_t line, int64_t i) {
  const void *rows = attn_rows(o, p->o, line / p->heads, line % p->heads, p->dtype);
  return attn_at(rows, i * p->o.row, p->dtype);
}

static attn_status check_gates(const sum *s, const attn_call *call) {
  const attn_extra *x = s->given ? attn_call_extra(call, "gate") : NULL;
  const int64_t d_v = call->context->problem->d_v, count = x ? x->batch * x->heads * x->n * x->columns : 0;
  int64_t wrong = 0;
  if (x && x->columns != s->given && x->columns != s->given * d_v)
    return attn_fail(
        ATTN_EINVAL,
        "execute: extra tensor gate of %lld columns: the sum has %lld gates of 1 or %lld columns",
        (long long)x->columns, (long long)s->given, (long long)d_v);
#pragma omp parallel for num_threads(call->context->threads) schedule(static) reduction(+ : wrong)
  for (int64_t at = 0; at < count; at++) wrong += !isfinite(attn_get(x->at, at, x->dtype));
  return wrong ? attn_fail(ATTN_EINVAL, "execute: extra tensor gate: %lld numbers are not finite",
                           (long long)wrong)
               : ATTN_OK;
}

/* o <- g o, or o + g more with `more` packed, g the gate of term t. */
static void add(const sum *s, const attn_call *call, int64_t t, void *total, const void *more) {
  const attn_problem unrounded = attn_problem_unrounded(call->context->problem), *p = &unrounded;
  const attn_extra *given = s->places[t] < 0 ? NULL : attn_call_extra(call, "gate");
  const int64_t width = given ? given->columns / s->given : 0;
  const double sign = copysign(1, s->gates[t]);
#pragma omp parallel num_threads(call->context->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
#pragma omp for schedule(static)
    for (int64_t x = 0; x < p->batch * p->heads * p->n_q; x++) {
      const int64_t line = x / p->n_q;
      void *o = row_of(p, total, line, x % p->n_q);
      const void *own = attn_call_extra_row(call, given, line / p->heads, line % p->heads, x % p->n_q);
      for (int64_t l = 0; l < p->d_v; l++) {
        const int64_t column = s->places[t] * width + (width > 1 ? l : 0);
        const double gate = own ? sign * attn_get(own, column, given->dtype) : s->gates[t];
        attn_set(o, l, p->dtype,
                 more ? attn_get(o, l, p->dtype) + gate * attn_get(more, x * p->d_v + l, p->dtype)
                      : gate * attn_get(o, l, p->dtype));
      }
    }
    attn_float_leave(&outer);
  }
}

static attn_status execute(const void *state, const attn_call *call) {
  const sum *s = state;
  const attn_problem *p = call->context->problem;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout room = lay_out(p, s->count, s->work_size, &carver);
  void *total = p->o.stored ? room.sum : call->o;
  attn_status status = check_gates(s, call);
  for (int64_t t = 0; t < s->count && !status; t++) {
    void *o = t ? room.o : total;
    status = attn_call_run(call, s->plans[t], o, NULL, room.work);
    if (!status && (t || s->places[t] >= 0 || s->gates[t] < 1 || s->gates[t] > 1))
      add(s, call, t, total, t ? o : NULL);
  }
  if (!status && p->o.stored) attn_store_outputs(call, total);
  return status;
}

static void inspect(const void *state, const attn_context *c, attn_view *view) {
  const sum *s = state;
  view->expression = c->expression;
  view->caps &= s->caps;
  view->exempt = s->exempt;
  view->by_features = s->by_features;
}

static attn_status size(const attn_context *c, size_t *work_size, attn_cost *cost) {
  const attn_expression *e = c->expression;
  const attn_problem *p = c->problem;
  size_t most = 0;
  attn_status status = ATTN_OK;
  for (int64_t t = 0; t < e->count && !status; t++) {
    const attn_problem own = problem_of(p, t);
    size_t bytes = 0;
    attn_cost more = {0};
    status = expression_size_term(c, &own, e->terms[t], &bytes, &more);
    if (bytes > most) most = bytes;
    if (cost) expression_add_cost(cost, more, 1);
  }
  attn_carver carver = attn_carver_count(c);
  lay_out(p, e->count, most, &carver);
  if (work_size) *work_size = carver.used;
  return status;
}

const expression_kind expression_sum = {
    .method = {.work_size = expression_work_size, .plan = plan, .execute = execute, .inspect = inspect},
    .size = size};
