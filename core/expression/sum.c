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

static int64_t query_rows(const attn_problem *p) { return p->batch * p->heads * p->n_q; }
static int64_t key_rows(const attn_problem *p) { return p->batch * p->kv_heads * p->n_kv; }

/* Of rows [batch, heads, n_q, d_v] one behind the other. */
static attn_stride packed(const attn_problem *p) {
  return (attn_stride){p->heads * p->n_q * p->d_v, p->n_q * p->d_v, p->d_v, 0};
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

/* The gates of term t: a number, or of each row `width` of the call's. */
typedef struct term_gate {
  const attn_extra *given; /* NULL: value */
  int64_t first, width;
  double value; /* of a gate that is given its sign */
} term_gate;

static term_gate gate_of(const sum *s, const attn_call *call, int64_t t) {
  const attn_extra *given = s->places[t] < 0 ? NULL : attn_call_extra(call, "gate");
  const int64_t width = given ? given->columns / s->given : 0;
  return (term_gate){given, s->places[t] * width, width, given ? copysign(1, s->gates[t]) : s->gates[t]};
}

/* own: the row of the call's tensor; NULL without it. */
static double gate_at(const term_gate *g, const void *own, int64_t l) {
  return own ? g->value * attn_get(own, g->first + (g->width > 1 ? l : 0), g->given->dtype) : g->value;
}

/* Of every row [d_v]: y <- g x, or y + g x. x may be y. */
static void gate_rows(const sum *s, const attn_call *call, int64_t t, const void *x, attn_stride x_at,
                      void *y, attn_stride y_at, bool add) {
  const attn_problem *p = call->context->problem;
  const term_gate g = gate_of(s, call, t);
#pragma omp parallel num_threads(call->context->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
#pragma omp for schedule(static)
    for (int64_t row = 0; row < query_rows(p); row++) {
      const int64_t b = row / p->n_q / p->heads, h = row / p->n_q % p->heads, i = row % p->n_q;
      const void *own = attn_call_extra_row(call, g.given, b, h, i),
                 *from = attn_row(x, x_at, b, h, i, p->dtype);
      void *to = attn_row(y, y_at, b, h, i, p->dtype);
      for (int64_t l = 0; l < p->d_v; l++) {
        const double more = gate_at(&g, own, l) * attn_get(from, l, p->dtype);
        attn_set(to, l, p->dtype, add ? attn_get(to, l, p->dtype) + more : more);
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
  const attn_stride to = attn_problem_unrounded(p).o;
  void *total = p->o.stored ? room.sum : call->o;
  attn_status status = check_gates(s, call);
  for (int64_t t = 0; t < s->count && !status; t++) {
    void *o = t ? room.o : total;
    status = attn_call_run(call, s->plans[t], o, NULL, room.work);
    if (!status && (t || s->places[t] >= 0 || s->gates[t] < 1 || s->gates[t] > 1))
      gate_rows(s, call, t, o, t ? packed(p) : to, total, to, t);
  }
  if (!status && p->o.stored) attn_store_outputs(call, total);
  return status;
}

/* -- the gradients: sum_t of those of term t, whose output has g_t d_o -- */

/* Of a term: its output and log-sum-exp, computed again, the gradient by the output, and what the terms after
 * the first add to the results. */
typedef struct back_layout {
  void *o, *d_o, *dq, *dk, *dv, *work;
  double *lse, *dsink;
} back_layout;

/* Elements from the first to behind the last of what the first term writes. */
static int64_t extent_of(const attn_problem *p) {
  const attn_stride o = problem_of(p, 0).o;
  return (p->batch - 1) * o.batch + (p->heads - 1) * o.head + (p->n_q - 1) * o.row + p->d_v;
}

static back_layout lay_out_back(const attn_problem *p, size_t work_size, attn_carver *carver) {
  const size_t e = attn_dtype_size(p->dtype);
  return (back_layout){.o = attn_carve(carver, attn_max(extent_of(p), query_rows(p) * p->d_v), 1, e),
                       .d_o = attn_carve(carver, query_rows(p), p->d_v, e),
                       .dq = attn_carve(carver, query_rows(p), p->d_qk, e),
                       .dk = attn_carve(carver, key_rows(p), p->d_qk, e),
                       .dv = attn_carve(carver, key_rows(p), p->d_v, e),
                       .work = attn_carve(carver, 1, 1, work_size),
                       .lse = attn_carve(carver, query_rows(p), 1, sizeof(double)),
                       .dsink = attn_carve(carver, p->heads, 1, sizeof(double))};
}

/* The work memory of any term, forward or backward. */
static attn_status terms_size(const sum *s, size_t *bytes) {
  attn_status status = ATTN_OK;
  *bytes = s->work_size;
  for (int64_t t = 0; t < s->count && !status; t++) status = attn_plan_backward_most(s->plans[t], bytes);
  return status;
}

static attn_status backward_size(const void *state, const attn_context *c, const attn_parts *parts,
                                 size_t *bytes) {
  size_t inside = 0;
  const attn_status status = terms_size(state, &inside);
  attn_carver carver = attn_carver_count(c);
  (void)parts;
  lay_out_back(c->problem, inside, &carver);
  *bytes = carver.used;
  return status;
}

/* to += more. */
static void add_up(int threads, int64_t count, attn_dtype t, void *to, const void *more) {
#pragma omp parallel num_threads(threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < (to ? count : 0); i++)
      attn_set(to, i, t, attn_get(to, i, t) + attn_get(more, i, t));
    attn_float_leave(&outer);
  }
}

/* Adds d_o.o_t, or its elements, to the gradient by the gates of term t. Heads and batch entries may share a
 * row. */
static void add_gates(const sum *s, const attn_call *call, int64_t t, const void *o,
                      const attn_gradients *g) {
  const attn_problem *p = call->context->problem;
  const term_gate gate = gate_of(s, call, t);
  const attn_extra *x = gate.given;
  double *of = x && g->dextra ? g->dextra[x - call->extra] : NULL;
  const attn_stride at = t ? packed(p) : problem_of(p, 0).o;
  for (int64_t line = 0; line < (of ? p->batch * p->heads : 0); line++) {
    const int64_t b = line / p->heads, h = line % p->heads;
    const char *own = attn_call_extra_row(call, x, b, h, 0);
    double *rows = of + (size_t)(own - (const char *)x->at) / attn_dtype_size(x->dtype);
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
    for (int64_t i = 0; i < p->n_q; i++) {
      const void *d_o = attn_row(g->d_o, g->d_o_at, b, h, i, p->dtype),
                 *term = attn_row(o, at, b, h, i, p->dtype);
      double *to = rows + i * x->columns + gate.first;
      fenv_t outer;
      attn_float_enter(&outer);
      for (int64_t l = 0; l < p->d_v; l++)
        to[gate.width > 1 ? l : 0] += gate.value * attn_get(d_o, l, p->dtype) * attn_get(term, l, p->dtype);
      attn_float_leave(&outer);
    }
  }
}

static attn_status backward_term(const sum *s, const attn_call *call, int64_t t, const back_layout *room,
                                 const attn_gradients *g) {
  const attn_problem *p = call->context->problem;
  const int threads = call->context->threads;
  const bool rows = attn_plan_variant(s->plans[t])->caps & ATTN_CAP_LSE;
  attn_gradients of = *g;
  double *lse = rows ? room->lse : NULL;
  attn_status status = attn_call_run(call, s->plans[t], room->o, lse, room->work);
  if (status) return status;
  of.d_o = room->d_o;
  of.d_o_at = (attn_stride){0};
  of.dlse = NULL;
  gate_rows(s, call, t, g->d_o, g->d_o_at, room->d_o, packed(p), false);
  add_gates(s, call, t, room->o, g);
  if (t) {
    if (g->dq) of.dq = room->dq;
    if (g->dk) of.dk = room->dk;
    if (g->dv) of.dv = room->dv;
    if (g->dsink) of.dsink = room->dsink;
  }
  status = attn_call_backward(call, s->plans[t], room->o, lse, &of, room->work);
  if (status || !t) return status;
  add_up(threads, query_rows(p) * p->d_qk, p->dtype, g->dq, room->dq);
  add_up(threads, key_rows(p) * p->d_qk, p->dtype, g->dk, room->dk);
  add_up(threads, key_rows(p) * p->d_v, p->dtype, g->dv, room->dv);
  add_up(1, p->heads, ATTN_F64, g->dsink, room->dsink);
  return ATTN_OK;
}

static attn_status backward(const void *state, const attn_call *call, const attn_gradients *g) {
  const sum *s = state;
  size_t inside = 0;
  attn_status status = terms_size(s, &inside);
  attn_carver carver = attn_carver_at(call, call->work);
  const back_layout room = lay_out_back(call->context->problem, inside, &carver);
  if (!status) status = check_gates(s, call);
  for (int64_t t = 0; t < s->count && !status; t++) status = backward_term(s, call, t, &room, g);
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

const expression_kind expression_sum = {.method = {.work_size = expression_work_size,
                                                   .plan = plan,
                                                   .execute = execute,
                                                   .inspect = inspect,
                                                   .backward_size = backward_size,
                                                   .backward = backward,
                                                   .bias_gradients = true},
                                        .size = size};
