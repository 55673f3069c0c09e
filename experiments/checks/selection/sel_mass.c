/* sel_mass.c - SEL-5: the identities that tie the mass that a selection keeps to total variation, divergence
 * and the error of the output. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/rows.h"

#include <math.h>

static outcome judge_identities(const evidence *e, const row_facts *f, const double *given) {
  const row_verdict verdict = f->bounded != ROW_OK ? f->bounded : f->reference;
  const int64_t d_v = e->problem->d_v;
  double error = 0, shift = 0, room = 0;
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  for (int64_t l = 0; l < d_v; l++) {
    const double off = f->bound[l] + 4 * f->exact_error[l];
    error += (given[l] - f->exact[l]) * (given[l] - f->exact[l]);
    shift += (f->identity[l] - f->exact[l]) * (f->identity[l] - f->exact[l]);
    room += off * off;
  }
  outcome worst = {.measured = f->divergence, .value = f->divergence_room};
  if (!isfinite(shift) || !isfinite(room)) return (outcome){.why = row_reason(ROW_OVERFLOW)};
  outcome_worsen(&worst, (outcome){.measured = fabs(sqrt(error) - sqrt(shift)),
                                   .value = sqrt(room) + 4 * sqrt((double)d_v) * 0x1p-537});
  return worst;
}

static attn_status identities_evaluate(const evidence *e, result_bound *bound) {
  if (e->problem->score.sink)
    return bound_not_applicable(bound, "a sink takes part of the mass, and is no key");
  if (e->view->selector->weighted)
    return bound_not_applicable(bound, "keys with weights of their own stand for what is left out");
  return facts_check(e, judge_identities, bound);
}

const check check_sel5 = {
    .name = "SEL-5",
    .of = &of_selectors,
    .kind = KIND_HARD,
    .statement =
        "the mass left out is total variation and 1 - e^-KL, and times the distance of means the error",
    .source = "Tzachristas et al. 2025 for TV = 1 - e^-KL; the error is SP-1's identity in norms",
    .formula = "p exact weights, p_S their softmax over the selected keys S, T the others, t = sum of p over "
               "T: TV(p, p_S) = t = 1 - e^-KL(p_S || p), and |o^ - o| = t |mu_T - mu_S| to within FP-1's "
               "bound on S and four fp64 errors.",
    .assumes =
        "As SP-1. The first identity judges this program's record of what was selected, on which the columns "
        "kept_mass_mean and regret_mean rest; the second is weaker than SP-1, of which it is the norm.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, 8 of 96 keys selected"),
    .evaluate = identities_evaluate,
};
