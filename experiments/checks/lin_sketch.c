/* lin_sketch.c - LIN-1 and LIN-2: the error of a random projection on this very product of weights and
 * values.
 *
 * One run is judged by Markov's inequality: p = mean / error^2. It sees the projection, not the output: blind
 * to zeros (whose error |AB|^2 is below the mean as a rule), to the mean of V and to random keys. */
#include "experiments/checks/table.h"

#include "experiments/evidence/moments.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/vector.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>

static const double alpha = 1e-3;

static void mean_judge(const sketch *s, int64_t k, const double *error, result_bound *bound) {
  const double sum = vector_dot(error, error, s->rows * s->d_v), mean = sketch_mean(s, (double)k);
  /* fp64 rounding of the projections, each entry at most sqrt(N/k): all that is left at k = n. */
  double rounding = gamma_of(s->n + k + 64, 0x1p-53) * 4 * (double)s->n * sqrt(s->a_norm * s->v_norm);
  double root = sqrt(mean) + rounding;
  bound_prob(bound, sum, root * root, sum > 0 ? fmin(1, root * root / sum) : 1);
}

/* P(| |Ru|^2 / |u|^2 - 1 | >= t) of a Gaussian R of k rows, for u = a + b and u = a - b: 4 a.b = |a+b|^2 -
 * |a-b|^2, and |a+b|^2 + |a-b|^2 = 4 for unit a and b, so that |aR'Rb - a.b| >= t needs one of them. */
static double product_tail(int64_t k, double t) {
  double n = (double)k, above = gsl_cdf_chisq_Q(n * (1 + t), n);
  return 2 * (above + (t < 1 ? gsl_cdf_chisq_P(n * (1 - t), n) : 0));
}

static void products_judge(const sketch *s, int64_t k, const double *error, result_bound *bound) {
  double worst = 0, count = (double)(s->rows * s->d_v);
  for (int64_t r = 0; r < s->rows; r++) {
    double a = 0;
    for (int64_t i = 0; i < s->n; i++) a += s->a[r][i] * s->a[r][i];
    for (int64_t l = 0; l < s->d_v; l++) {
      double b = 0;
      for (int64_t i = 0; i < s->n; i++) b += s->v[i * s->d_v + l] * s->v[i * s->d_v + l];
      double off = fabs(error[r * s->d_v + l]) / sqrt(a * b);
      if (!(off <= worst) && a * b > 0) worst = off;
    }
  }
  double low = 0, high = 64;
  for (int step = 0; step < 60; step++) {
    double t = (low + high) / 2;
    if (count * product_tail(k, t) > alpha)
      low = t;
    else
      high = t;
  }
  bound_prob(bound, worst, high, isnan(worst) ? 0 : fmin(1, count * product_tail(k, worst)));
}

static attn_status sketch_evaluate(const evidence *e, bool jl, result_bound *bound) {
  sketch s;
  const char *why = sketch_missing(e->view->projection);
  if (!why && jl && (e->view->projection->law != ATTN_PROJECTION_GAUSSIAN || !e->view->projection->shared))
    why = "no Gaussian projection that keys and values share";
  if (why) return bound_not_applicable(bound, why);
  probe *p;
  attn_status status = probe_get(e, &p);
  if (status) return status;
  if (!p->head.finite) return bound_uncertifiable(bound, row_reason(ROW_INFINITE));
  if ((status = sketch_of_run(e, p, &s))) return status;
  double *error = malloc((size_t)(s.rows * s.d_v) * sizeof *error + 1);
  status =
      error ? projected_error(p, &s, error) : attn_fail(ATTN_ENOMEM, "no memory for the errors of a sketch");
  if (!status && jl)
    products_judge(&s, p->view.projection->slots, error, bound);
  else if (!status)
    mean_judge(&s, p->view.projection->slots, error, bound);
  free(error);
  sketch_free(&s);
  return status;
}

static attn_status mean_evaluate(const evidence *e, result_bound *bound) {
  return sketch_evaluate(e, false, bound);
}

static attn_status products_evaluate(const evidence *e, result_bound *bound) {
  return sketch_evaluate(e, true, bound);
}

const check check_lin1 = {
    .name = "LIN-1",
    .of = &of_projections,
    .kind = KIND_PROB,
    .statement = "the squared error of the projected product exceeds its exact mean by a factor t with "
                 "probability 1/t",
    .source = "derived: Isserlis, sign pairings, finite-population variance, with Markov",
    .formula = "For A exact weights, B = V, E and F of k rows, X = sum_i |A_:i|^2 |B_i:|^2, the mean of |A "
               "E' F B - A B|^2 is: F = E gaussian: (|A|^2 |B|^2 + |AB|^2) / k; rademacher: less 2X / k; "
               "srht of order N: (N-k) / (k (N-1)) times (|A|^2 |B|^2 + |AB|^2 - 2X); dct: (n-k) / (k "
               "(n-1)) (n tau - |AB|^2), tau = sum over rows a of A and columns b of B of a2' G b2 + 2 "
               "(ab)' G (ab) - 2 sum_i G_ii a_i^2 b_i^2, elementwise, G_ij = (n-1)/n^2 + ([i=j] + "
               "[j=n-1-i]) / 2n. E and F apart: gaussian and rademacher |AB|^2 + |A|^2 |B|^2 / k; srht and "
               "dct |AB|^2 + (|A|^2 |B|^2 + (k-1) sum_i |A_:i|^2 g_i sum_i |B_i:|^2 g_i) / k, g_i = "
               "((sum_r T_ri)^2 - 1) / (order - 1) of the transform T. p = mean / error^2.",
    .assumes = "A random projection whose law is known (gaussian, rademacher, srht, dct); not causal.",
    .nulls =
        CHECK_BLIND("the projected product is computed from the projection itself; no output is looked at"),
    .evaluate = mean_evaluate,
};

const check check_lin2 = {
    .name = "LIN-2",
    .of = &of_projections,
    .kind = KIND_PROB,
    .statement =
        "no projected product of a row of weights and a column of values is further off than a Gaussian "
        "projection of k rows allows",
    .source = "Johnson-Lindenstrauss by polarisation; Dasgupta and Gupta 2003 bound the same tail",
    .formula = "For one pair, |a R'R b - a.b| > t |a| |b| has probability at most 2 P(|chi^2_k / k - 1| > "
               "t) <= 4 exp(-k (t^2/4 - t^3/6)). measured = the largest over rows of exact weights and "
               "columns of V, value its limit at alpha = 1e-3, p = the number of pairs times the "
               "probability. Required: k >= ln(4 n d_v / alpha) / (t^2/4 - t^3/6) for all n rows. "
               "Linformer's own Lemma 1, t |a.b| on the right, is false for a orthogonal to b.",
    .assumes = "A Gaussian projection that keys and values share; the product itself is projected, not the "
               "scores. Not causal.",
    .nulls =
        CHECK_BLIND("the projected product is computed from the projection itself; no output is looked at"),
    .evaluate = products_evaluate,
};
