/* gradient_sum.c - GRAD-SUM: the gradients of a gated sum are the sums of those of its terms, each of
 * which is run by itself, for its gate times the upstream gradient; those by the gates are d_o.o of the
 * term. */
#include "experiments/properties/gradient_run.h"

#include "attn_expression.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Of q, k, v and the gates. */
enum { RESULTS = 4, GATES = 3 };

typedef struct total {
  double *at, *size; /* the sum, and that of its terms' magnitudes */
  int64_t count;
} total;

typedef struct term_walk {
  const trial *t;
  const gradient_run *g;
  const attn_expression *sum;
  int64_t before; /* terms before this one whose gates are given */
  total of[RESULTS];
} term_walk;

static void *result_of(const gradient_run *g, int which) {
  return (void *[]){g->dq, g->dk, g->dv, g->extras ? g->dextra[0] : NULL}[which];
}

static void add(total *x, int64_t i, double value) {
  x->at[i] += value;
  x->size[i] += fabs(value);
}

/* Where the gate of an element of the term's outputs stands. */
static int64_t gate_place(const term_walk *w, int64_t x) {
  const attn_problem *p = &w->g->in->problem;
  const attn_extra *gates = &w->g->extra[0];
  const int64_t row = x / p->d_v, line = row / p->n_q,
                head = line / p->heads * gates->heads + line % p->heads * gates->heads / p->heads;
  return (head * p->n_q + row % p->n_q) * gates->columns + w->before * p->d_v + x % p->d_v;
}

static attn_status add_term(term_walk *w, const attn_expression *term) {
  const attn_problem *given = &w->g->in->problem;
  const double sign = term->gate < 0 ? -1 : 1;
  const bool gated = term->given && w->g->extras;
  attn_problem p = *given;
  attn_spec *spec = NULL;
  attn_plan *plan = NULL;
  trial_inputs in = *w->g->in;
  gradient_run own;
  double loss, size;
  p.o = in.problem.o = (attn_stride){0};
  attn_status status = attn_spec_at(term, &spec);
  if (!status) status = attn_plan_create_spec(&plan, &p, spec, &w->t->options);
  if (!status) status = gradient_run_make(w->t->memory, plan, &in, &own);
  if (!status) {
    own.extras = 0;
    if (own.dlse) memset(own.dlse, 0, (size_t)(p.batch * p.heads * p.n_q) * sizeof *own.dlse);
    for (int64_t x = 0; x < p.batch * p.heads * p.n_q * p.d_v; x++) {
      const double gate = gated ? sign * w->g->own[0][gate_place(w, x)] : term->gate;
      attn_set(own.d_o, x, p.dtype, gate * attn_get(w->g->d_o, x, p.dtype));
    }
    status = gradient_run_forward(&own, &in, &loss, &size);
  }
  for (int64_t x = 0; !status && gated && x < p.batch * p.heads * p.n_q * p.d_v; x++)
    add(&w->of[GATES], gate_place(w, x),
        sign * attn_get(w->g->d_o, x, p.dtype) * attn_get(own.o, x, p.dtype));
  if (!status) status = gradient_run_backward(&own);
  for (int which = 0; !status && which < GATES; which++)
    for (int64_t i = 0; i < w->of[which].count; i++)
      add(&w->of[which], i, attn_get(result_of(&own, which), i, p.dtype));
  w->before += term->given;
  attn_plan_destroy(plan);
  attn_spec_destroy(spec);
  return status;
}

/* A product and a sum for each term, or head that shares a gate, here and there. */
static void compare(const term_walk *w, int which, double *worst, result_bound *bound) {
  static const char *const names[] = {"dq", "dk", "dv", "by the gates"};
  const attn_problem *p = &w->g->in->problem;
  const attn_dtype type = which == GATES ? ATTN_F64 : p->dtype;
  const attn_number *number = &attn_numbers[type];
  const double terms = 4 * (double)(which == GATES ? p->heads / p->kv_heads + 1 : w->sum->count);
  for (int64_t i = 0; i < w->of[which].count; i++) {
    const double value = attn_get(result_of(w->g, which), i, type), want = w->of[which].at[i],
                 room = terms * (number->unit * w->of[which].size[i] + number->subnormal),
                 ratio = fabs(value - want) / room;
    if (!(w->of[which].size[i] <= number->largest / 2) || ratio <= *worst) continue;
    *worst = isnan(ratio) ? (double)INFINITY : ratio;
    if (*worst <= 1) continue;
    bound_property(bound, *worst, 1);
    bound_say(bound, "%s, element %lld is %.7g, the terms add up to %.7g", names[which], (long long)i, value,
              want);
  }
}

static attn_status sum_judge(const trial *t, result_bound *bound) {
  const attn_problem *p = &t->in.problem;
  gradient_run g;
  double loss, size, worst = 0;
  attn_status status = gradient_run_make(t->memory, t->plan, &t->in, &g);
  if (status) return status;
  term_walk w = {.t = t, .g = &g, .sum = g.view.expression};
  const int64_t counts[RESULTS] = {
      p->batch * p->heads * p->n_q * p->d_qk, p->batch * p->kv_heads * p->n_kv * p->d_qk,
      p->batch * p->kv_heads * p->n_kv * p->d_v, g.extras ? gradient_run_count(&g.extra[0]) : 0};
  for (int which = 0; which < RESULTS; which++)
    w.of[which] = (total){region_zeros(t->memory, counts[which], sizeof(double)),
                          region_zeros(t->memory, counts[which], sizeof(double)), counts[which]};
  status = region_status(t->memory, "for the gradients of a sum");
  if (!status) status = gradient_run_forward(&g, &t->in, &loss, &size);
  if (!status) status = gradient_run_backward(&g);
  for (int64_t i = 0; !status && i < w.sum->count; i++) status = add_term(&w, w.sum->terms[i]);
  for (int which = 0; !status && which < RESULTS; which++) compare(&w, which, &worst, bound);
  if (!status && bound->verdict != VERDICT_VIOLATED) bound_property(bound, worst, 1);
  return status;
}

PROPERTY(sum)
const check check_grad_sum = {
    .name = "GRAD-SUM",
    .of = &of_sum_gradients,
    .kind = KIND_PROPERTY,
    .statement = "the gradients of a sum are the sums of those of its terms, each for its gate times d_o",
    .source = "the derivative of a gated sum",
    .formula = "|dq^ - sum_t dq_t| <= 4 T u sum_t |dq_t|, every element, and so dk and dv, with T terms, of "
               "which dq_t is the gradient of a separate plan for the upstream gradient g_t d_o; by a gate: "
               "d_o o_t, over the heads that share it.",
    .assumes = "It says nothing of the terms, which are judged where they are run by themselves; so terms "
               "whose keys depend on Q and K are no exception; nor of an element whose terms are beyond the "
               "range of its type.",
    .cause = "a term has the upstream gradient without its gate or with that of another, or overwrites what "
             "the terms before it gave",
    .nulls = PROPERTY_BLIND,
    .evaluate = sum_evaluate,
};
