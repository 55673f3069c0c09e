/* values.c - PROP-EMPTY and PROP-VALUES: a query that sees no key gives zeros, and the output is linear in
 * V. */
#include "experiments/properties/property.h"
#include "experiments/reference/visible.h"

#include <math.h>
#include <stdlib.h>

/* -- no key -- */

/* Components other than 0 of rows that see no key; *rows: how many rows do. */
static attn_status find_full(region *memory, const attn_plan *plan, const trial_inputs *in, const char *o,
                             difference *found, int64_t *rows) {
  const attn_problem *p = &in->problem;
  attn_view view;
  attn_status status = attn_plan_inspect(plan, &view);
  if (status) return status;
  attn_run *runs = region_zeros(memory, view.pattern ? view.pattern->max_runs : 1, sizeof *runs);
  bool *inside = region_zeros(memory, p->n_kv, sizeof *inside);
  status = region_status(memory, "for a row");
  for (int64_t at = 0; !status && at < p->batch * p->heads * p->n_q; at++) {
    const int64_t b = at / p->n_q / p->heads, h = at / p->n_q % p->heads, i = at % p->n_q,
                  keys = in->padded ? in->kv_len[b] : p->n_kv;
    if (visible_mark(view.pattern, p, b, h, i, keys, runs, inside)) continue;
    ++*rows;
    for (int64_t l = 0; l < p->d_v; l++) {
      const double x = attn_get(o, at * p->d_v + l, p->dtype);
      if (x <= 0 && x >= 0) continue;
      if (!found->count++) *found = (difference){in, 1, b, h, i, l, (double)INFINITY, 0, x};
    }
  }
  return status;
}

/* A batch entry without keys, and queries before the first key, as far as declared. A problem that the
 * variant does not take has no rows. */
static attn_status judge_empty(const trial *t, int64_t n_q, int64_t *rows, result_bound *bound) {
  attn_problem p = t->in.problem;
  attn_plan *plan = NULL;
  trial_inputs in;
  char *o = NULL;
  difference found = {.count = 0};
  p.n_kv = 70;
  p.n_q = n_q;
  attn_status status = trial_inputs_gather(t->memory, &t->in, &p, 0, &in);
  if (status) return status;
  in.padded = t->view.caps & ATTN_CAP_PADDING;
  for (int64_t b = 0; b < p.batch; b++) in.kv_len[b] = b < p.batch - 1 ? 45 : 0;
  status = attn_plan_create_spec(&plan, &in.problem, t->spec, &t->options);
  if (status == ATTN_EUNSUPPORTED || status == ATTN_EINVAL) return ATTN_OK;
  if (!status) status = trial_execute(t->memory, plan, &in, POISON_NAN, &o);
  if (!status) status = find_full(t->memory, plan, &in, o, &found, rows);
  if (!status && *rows) status = difference_settle(&found, 0, "it sees no key", bound);
  attn_plan_destroy(plan);
  return status;
}

/* As many queries as keys, more, and few, for which engines have other kernels. */
static attn_status empty_judge(const trial *t, result_bound *bound) {
  const int64_t queries[] = {70, 97, 3};
  const int count = t->view.caps & ATTN_CAP_CROSS ? 3 : 1;
  int64_t rows = 0;
  for (int q = 0; q < count; q++) {
    const attn_status status = judge_empty(t, queries[q], &rows, bound);
    if (status || bound->verdict == VERDICT_VIOLATED) return status;
  }
  return rows ? ATTN_OK : bound_not_applicable(bound, "every query sees a key");
}

/* -- V -- */

static const double factor = 4;

static attn_status values_judge(const trial *t, result_bound *bound) {
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_VALUES);
  if (exempt) return bound_not_applicable(bound, exempt);
  if (t->view.recurrence && t->view.recurrence->rounds)
    return bound_not_applicable(bound, "the state is rounded to 16 bits, whose small numbers are not scaled");
  const attn_problem *p = &t->in.problem;
  const double most = 0x1p-20 * attn_numbers[p->dtype].largest; /* what is larger may overflow on its way */
  trial_inputs in;
  char *o = NULL;
  difference found = {.count = 0};
  attn_status status = trial_inputs_copy(t->memory, &t->in, &in);
  if (status) return status;
  for (int64_t i = 0; i < p->batch * p->kv_heads * p->n_kv * p->d_v; i++)
    attn_set(in.v, i, p->dtype, factor * attn_get(in.v, i, p->dtype));
  status = trial_run(t, &in, 1, POISON_NAN, &o);
  for (int64_t i = 0; !status && i < p->batch * p->heads * p->n_q * p->d_v; i++) {
    const double own = attn_get(t->o, i, p->dtype),
                 quarter = fabs(own) < most ? attn_get(o, i, p->dtype) / factor : own;
    attn_set(o, i, p->dtype, quarter);
  }
  if (!status) difference_all(&found, &t->in, o, &t->in, t->o);
  return status
             ? status
             : difference_settle(&found, trial_apart(t), "a quarter of the output for four times V", bound);
}

PROPERTY(empty)
const check check_prop_empty = {
    .name = "PROP-EMPTY",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement = "a query that sees no key gives zeros",
    .source = "the interface: attn_plan_execute (attn.h)",
    .formula =
        "Every component of every row that sees no key by the law: of a batch entry without keys, of queries "
        "before the first key, of blocks that are padding alone.",
    .assumes = "Declared: padding, or a causal mask and more queries than keys; else no query sees no key.",
    .cause = "0/0: the sum of no weights is divided by without a test",
    .nulls = CHECK_BLIND("it runs the variant on separate problems, and looks at no output of the run"),
    .evaluate = empty_evaluate,
};

PROPERTY(values)
const check check_prop_values = {
    .name = "PROP-VALUES",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement = "four times the values give bitwise four times the output",
    .source = "attention is linear in V; a power of two passes through sums and products untouched",
    .formula = "V times 4; the output, divided by 4, must not change.",
    .assumes = "No exemption (ATTN_EXEMPT_VALUES): keys may be drawn by their values.",
    .cause = "a constant is added before or after the division, outputs are clipped, or V enters the weights",
    .nulls = PROPERTY_BLIND,
    .evaluate = values_evaluate,
};
