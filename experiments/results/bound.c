/* bound.c - how a finding becomes a verdict. */
#include "experiments/results/bound.h"

#include <math.h>

void bound_begin(result_bound *b, const char *name, check_kind kind) {
  *b = (result_bound){.name = name, .kind = kind, .verdict = VERDICT_NOT_APPLICABLE};
  b->value = b->measured = b->margin = b->p_value = (double)NAN;
}

static void bound_set(result_bound *b, check_kind kind, double measured, double value) {
  b->kind = kind;
  b->measured = measured;
  b->value = value;
  b->margin = measured == 0 && value == 0 ? 0 : measured / value;
}

void bound_hard(result_bound *b, double measured, double value) {
  bound_set(b, KIND_HARD, measured, value);
  b->verdict = measured <= value * (1 + 1e-6) ? VERDICT_PASS : VERDICT_VIOLATED;
}

void bound_prob(result_bound *b, double measured, double value, double p_value) {
  bound_set(b, KIND_PROB, measured, value);
  b->p_value = p_value;
  b->verdict = VERDICT_CONSISTENT;
}

void bound_report(result_bound *b, double measured, double value) {
  bound_set(b, KIND_REPORT, measured, value);
  b->verdict = VERDICT_NOT_APPLICABLE;
}

void bound_excuse(result_bound *b, check_verdict verdict, const char *why) {
  b->verdict = verdict;
  column_cut_text(b->message, sizeof b->message, why);
}

void bound_uncertifiable(result_bound *b, const char *why) { bound_excuse(b, VERDICT_UNCERTIFIABLE, why); }

void bound_model(result_bound *b, double measured, double value) {
  bound_set(b, KIND_MODEL, measured, value);
  b->verdict = VERDICT_CONSISTENT;
  if (!(measured <= value * (1 + 1e-6))) bound_uncertifiable(b, "warning: more than the model allows");
}

void bound_not_applicable(result_bound *b, const char *why) { bound_excuse(b, VERDICT_NOT_APPLICABLE, why); }

check_verdict bounds_worst(const result_bound *bounds, int count) {
  static const int rank[] = {[VERDICT_NOT_APPLICABLE] = 0, [VERDICT_PASS] = 1,  [VERDICT_CONSISTENT] = 2,
                             [VERDICT_UNCERTIFIABLE] = 3,  [VERDICT_ERROR] = 4, [VERDICT_VIOLATED] = 5};
  check_verdict worst = VERDICT_NOT_APPLICABLE;
  for (int i = 0; i < count; i++)
    if (rank[bounds[i].verdict] > rank[worst]) worst = bounds[i].verdict;
  return worst;
}
