/* sel_nested.c - SEL-6: a larger budget selects more: S(k) lies in S(2 k). */
#include "experiments/checks/selection/selection_picks.h"

#include <stdio.h>
#include <stdlib.h>

static void judge_nested(const void *context, const pick_case *c, pick_finding *f) {
  const seen_keys *larger = context;
  const attn_run *runs;
  const int64_t count = seen_picks(larger, c->row->row, &runs);
  int64_t lost = 0, key = -1;
  for (int64_t r = 0; r < c->count; r++)
    for (int64_t j = c->runs[r].first; j < c->runs[r].first + c->runs[r].count; j++)
      if (!picks_have(runs, count, j) && !lost++) key = j;
  f->x = (outcome){.measured = (double)lost};
  snprintf(f->text, sizeof f->text, "selects key %lld, and does not with twice the budget", (long long)key);
}

/* *plan: with twice the budget; NULL, with a verdict: there is none. */
static attn_status plan_larger(const evidence *e, result_bound *bound, attn_plan **plan, attn_view *view) {
  const char *parameter = e->view->budget.parameter;
  attn_spec *spec = NULL;
  if (!parameter || !e->view->selector->grain || e->view->selector->weighted)
    return bound_not_applicable(bound, "no parameter is known that buys keys by a ranking");
  const int64_t value = (int64_t)attn_spec_number(attn_plan_parsed_spec(e->plan), parameter);
  attn_status status = attn_spec_with_int(attn_plan_parsed_spec(e->plan), parameter, 2 * value, &spec);
  if (!status) status = evidence_plan(e, e->problem, spec, 0, plan, view);
  attn_spec_destroy(spec);
  if (status == ATTN_EINVAL) return bound_not_applicable(bound, "twice the budget is out of range");
  if (status) return status;
  if (view->selector && (view->selector->margins || view->selector->kept > e->view->selector->kept))
    return ATTN_OK;
  attn_plan_destroy(*plan);
  *plan = NULL;
  return bound_not_applicable(bound, "twice the budget keeps no more");
}

static attn_status nested_evaluate(const evidence *e, result_bound *bound) {
  const exact_rows *x = e->exact;
  attn_plan *plan = NULL;
  attn_view view;
  const seen_keys *own;
  const int64_t *place;
  seen_keys larger = {.pattern = NULL};
  attn_status status = plan_larger(e, bound, &plan, &view);
  if (status || !plan) return status;
  bool *take = region_zeros(e->memory, x->judged, sizeof *take);
  status = region_status(e->memory, "for the rows of a check");
  if (!status) status = facts_seen(e, &own, &place);
  for (int64_t r = 0; !status && r < x->judged; r++) take[r] = place[r] >= 0;
  if (!status)
    status = seen_make(&(seen_run){plan, &view, evidence_tensors(e)}, x->rows, take, x->judged, &larger);
  if (!status) status = picks_check(e, 0, judge_nested, &larger, bound);
  seen_free(&larger);
  attn_plan_destroy(plan);
  return status;
}

const check check_sel6 = {
    .name = "SEL-6",
    .of = &of_selectors,
    .kind = KIND_HARD,
    .statement = "what is selected within a budget is selected within twice that",
    .source = "definition of a ranking; the mass left out does not grow with the budget, the error may",
    .formula =
        "S(k) within S(2 k), of every judged row, by a second plan that differs in the parameter that buys "
        "accuracy (attn_variant.budget). measured: keys of S(k) that are not in S(2 k).",
    .assumes =
        "The selector states a law, and twice the budget keeps more. Both plans rank with the same kernels.",
    .cause = "the ranking is not total: candidates are dropped before all keys have been seen",
    .nulls = CHECK_BLIND("it judges what is selected, and looks at no output"),
    .evaluate = nested_evaluate,
};
