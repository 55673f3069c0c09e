/* fav_output.c - FAV-5 and FAV-6: a Performer's output against the weights that its features define.
 *
 * Both run in fp64 on a probe and read W_j = sum_r (f_r(q) + eps)(e^(c_j - M) f_r(k_j) + eps), the weights of
 * the algorithm evaluated as a quadratic form. FAV-5 is wide where features estimate poorly (L large: on
 * Gaussian inputs at d = 64 it is nearly the diameter of V, and zeros, the mean of V and random keys pass);
 * with small scores and many features it rejects all three. FAV-6 compares the output with the quadratic form
 * itself, component by component, and rejects all three wherever they are not that. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/rows.h"
#include "experiments/evidence/moments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/mathematics/vector.h"

enum { ROWS = 8 };

typedef struct feature_case {
  const probe *p;
  double lambda[ROWS]; /* share of eps */
} feature_case;

/* Weights of the algorithm into s->weight, of the same without eps into s->slack, both relative to the
 * largest scale; returns their sums. A weight below the normal range is kept as its logarithm in s->score. */
typedef struct feature_sums {
  double with, without;
} feature_sums;

static feature_sums feature_weights(const probe *p, int64_t r, row_space *s) {
  const probe_features *f = &p->features;
  int64_t m = f->columns;
  const double *q = f->query + r * m;
  double eps = p->view.features->eps, top = -(double)INFINITY, q_sum = 0;
  feature_sums sums = {0, 0};
  for (int64_t c = 0; c < m; c++) q_sum += q[c];
  for (int64_t a = 0; a < s->count; a++) top = fmax(top, f->key_scale[s->index[a]]);
  for (int64_t a = 0; a < s->count; a++) {
    const double *k = f->key + s->index[a] * m;
    double scale = f->key_scale[s->index[a]] - top, factor = exp(scale), dot[4] = {0}, sum[4] = {0};
    for (int64_t c = 0; c < m; c += 4)
      for (int64_t t = 0; t < 4 && c + t < m; t++) {
        dot[t] += q[c + t] * k[c + t];
        sum[t] += k[c + t];
      }
    double product = (dot[0] + dot[1]) + (dot[2] + dot[3]), total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    double extra = eps * (q_sum + factor * total + (double)m * eps);
    s->slack[a] = factor * product;
    s->weight[a] = s->slack[a] + extra;
    s->score[a] = eps > 0 ? log(s->weight[a]) : scale + log(product);
    sums.without += s->slack[a];
    sums.with += s->weight[a];
  }
  return sums;
}

/* -- FAV-5: weights p' = p e^eta with osc eta = L move the output by at most tanh(L/4) Delta_V -- */

static outcome judge_hull_bound(void *context, int64_t place, int64_t r, row_space *s) {
  const probe *p = ((const feature_case *)context)->p;
  const attn_problem *x = &p->problem;
  row_verdict verdict = probe_bound(p, &p->head, NULL, r, s);
  (void)place;
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  if (s->count == 0) return (outcome){0, 0, NULL};
  double rounding = vector_norm(s->bound, x->d_v), low = (double)INFINITY, high = -(double)INFINITY;
  feature_weights(p, r, s);
  for (int64_t a = 0; a < s->count; a++) {
    double eta = s->score[a] - x->scale * vector_dot(s->q, p->head.k + s->index[a] * x->d_qk, x->d_qk);
    low = eta < low ? eta : low;
    high = eta > high ? eta : high;
  }
  double error = 0;
  verdict = probe_exact(p, r, s, &error);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  double value = tanh((high - low) / 4) * p->head.diameter + rounding + error;
  return (outcome){vector_distance(s->given, s->o, x->d_v), value, NULL};
}

/* -- FAV-6: o' = (1 - lambda) o~ + lambda o_E -- */

static outcome judge_mixing(void *context, int64_t place, int64_t r, row_space *s) {
  feature_case *c = context;
  const probe *p = c->p;
  row_verdict verdict = probe_bound(p, &p->head, NULL, r, s);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  const outcome worst = outcome_components(s->given, s->o, s->bound, p->problem.d_v);
  if (s->count == 0 || p->view.features->unnormalised || !(p->view.features->eps > 0)) return worst;
  const feature_sums sums = feature_weights(p, r, s);
  c->lambda[place] = 1 - sums.without / sums.with;
  return worst;
}

/* -- both -- */

static attn_status features_evaluate(const evidence *e, probe_judge *judge, feature_case *c,
                                     result_bound *bound) {
  probe *p;
  attn_status status = probe_get(e, &p);
  if (!status) status = probe_map(p);
  if (status == ATTN_EUNSUPPORTED) return bound_uncertifiable(bound, attn_last_error());
  c->p = p;
  return status ? status : probe_check(p, ROWS, judge, c, bound);
}

static attn_status hull_bound_evaluate(const evidence *e, result_bound *bound) {
  feature_law law;
  const char *why = feature_law_of(e->view->features, e->problem->d_qk, &law);
  if (!why && !(e->view->features->law.softmax && e->view->caps & ATTN_CAP_CONVEX))
    why = "no positive features of the softmax kernel";
  feature_case c = {.p = NULL};
  return why ? bound_not_applicable(bound, why) : features_evaluate(e, judge_hull_bound, &c, bound);
}

static attn_status mixing_evaluate(const evidence *e, result_bound *bound) {
  feature_case c = {.p = NULL};
  const attn_status status = features_evaluate(e, judge_mixing, &c, bound);
  double lambda = 0;
  for (int r = 0; r < ROWS; r++) lambda = fmax(lambda, c.lambda[r]);
  if (!status && (bound->verdict == VERDICT_PASS || bound->verdict == VERDICT_VIOLATED))
    bound_say(bound, "lambda up to %.3g", lambda);
  return status;
}

const check check_fav5 = {
    .name = "FAV-5",
    .of = &of_random_features,
    .kind = KIND_HARD,
    .statement = "the fp64 error of a row is at most tanh(L/4) Delta_V, L the range of ln of estimated over "
                 "exact weights",
    .source = "derived: total variation of two weightings whose log ratio has range L",
    .formula = "|o~ - o| <= tanh(L/4) Delta_V, L = max_j - min_j of ln(A^_j / A_j), A^_j = "
               "phi(q).phi(k_j), A_j = e^(c q.k_j), Delta_V = 2 max_j |v_j - mean V|; plus rounding.",
    .assumes = "Positive features (weights >= 0), finite logarithms; in fp64 on a probe with the run's "
               "draws.",
    .nulls = CHECK_REJECTS_ALL(
        "two kinds of keys told apart by their values, 32768 features, d = 4; blind on Gaussian "
        "inputs, where L is large"),
    .evaluate = hull_bound_evaluate,
};

const check check_fav6 = {
    .name = "FAV-6",
    .of = &of_features,
    .kind = KIND_HARD,
    .statement =
        "the fp64 output is (1-lambda) of that without eps and lambda of an average, lambda the share of eps",
    .source =
        "derived: exact identity of the stabilised features; with eps = 0, linear and quadratic forms agree",
    .formula = "With A'_j = c_q C A^_j + E_j, E_j = eps (c_q mean phi(q) + C mean phi(k_j) + eps) up to "
               "the number of features: o' = (1 - lambda) o~ + lambda o_E, lambda = sum E / sum A', "
               "component by component to within rounding. eps = 0: the linear and the quadratic form "
               "agree.",
    .assumes =
        "The denominator is not lost to cancellation; in fp64 on a probe with the run's draws. "
        "lambda is in the message. Features are the map's, which FAV-9 holds against their definition.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, 16 features, d = 16"),
    .evaluate = mixing_evaluate,
};
