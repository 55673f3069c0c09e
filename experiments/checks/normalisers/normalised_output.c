/* normalised_output.c - ENT-0: the output of a variant that weighs keys by another function of the scores
 * than softmax is the sum that its law defines, with the threshold that the law asks for.
 *
 * Where each computed weight lies follows from how far scores are off alone (normaliser_bound.c); the product
 * with the values adds its chain. It rejects zeros, the mean of V and random keys wherever they are not that
 * output. */
#include "experiments/checks/check_table.h"
#include "experiments/evidence/rounding/normaliser_bound.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/vector.h"

#include <math.h>

/* Evaluations of the law, for each key, in the multiply-adds of a budget. */
enum { SEARCHES = 3, STEPS = 60 };

static outcome judge_row(const row_case *x) {
  const attn_problem *p = x->e->problem;
  row_space *s = x->space;
  double size = 0;
  row_support(x->head, NULL, x->row->i, s);
  if (s->count == 0) return (outcome){vector_norm(s->given, p->d_v), 0, NULL};
  const row_verdict verdict = normaliser_bound(x->e, x->head, NULL, s);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  for (int64_t l = 0; l < p->d_v; l++) {
    double sum = 0;
    for (int64_t a = 0; a < s->count; a++) sum += s->weight[a] * fabs(x->head->v[s->index[a] * p->d_v + l]);
    size = fmax(size, sum);
  }
  return outcome_rounded(s->given, s->o, s->bound, p->d_v, size);
}

static attn_status evaluate(const evidence *e, result_bound *bound) {
  const attn_normaliser *x = e->view->normaliser;
  if (!x->weight) return stated_demand(e, bound);
  return rows_check(e, row_cost(e) + (double)(e->problem->n_kv * (x->sums ? SEARCHES * STEPS : SEARCHES)),
                    judge_row, bound);
}

const check check_ent0 = {
    .name = "ENT-0",
    .of = &of_normalisers,
    .kind = KIND_HARD,
    .statement = "the output is the sum over keys that the law of the normaliser defines",
    .source = "definition of the normaliser (the head of the variant's file names its papers); derived",
    .formula =
        "|o^_l - o_l| <= sum_j (max(w+_j - w_j, w_j - w-_j) + gamma w+_j) |v_jl|, o = sum_j w_j v_j, w_j = "
        "w(s_j - tau). With e_j how far a computed score is off: w+_j = w(s_j + e_j - tau-), w-_j = w(s_j - "
        "e_j - tau+), tau- the threshold of the scores s - e for the sum 1 + r, tau+ of s + e for 1 - r, r "
        "what "
        "the computed weights' sum is off; tau = 0 where weights need not sum to 1. gamma: the roundings of "
        "the sum over keys.",
    .cause = "the threshold is not that of the keys which the row sees, or the number of these keys is wrong",
    .assumes = "Weights do not fall with the score; they and their sums fit the type.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, d = 16, sparsemax"),
    .evaluate = evaluate,
};
