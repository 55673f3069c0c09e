/* sketch.c - LIN-1 and LIN-2: the error of a random projection on this very product of weights and values.
 *
 * With A rows of exact weights, B = V, X = sum_i |A_:i|^2 |B_i:|^2, the mean of |A E^T F B - A B|^2 is
 *   gaussian    F = E: (|A|^2 |B|^2 + |AB|^2) / k                      E, F apart: |AB|^2 + |A|^2 |B|^2 / k
 *   rademacher  F = E: (|A|^2 |B|^2 + |AB|^2 - 2X) / k                 E, F apart: the same
 *   srht        F = E: (N-k) / (k (N-1)) (|A|^2 |B|^2 + |AB|^2 - 2X), N the order of the transform, zeros
 *               appended
 *   dct         F = E: (n-k) / (k (n-1)) (n tau - |AB|^2), tau = sum over rows a of A and columns b of B of
 *               a2' G b2 + 2 (ab)' G (ab) - 2 sum_i G_ii a_i^2 b_i^2, G_ij = (n-1)/n^2 + ([i=j] + [j=n-1-i])
 *                 / 2n
 *   srht, dct   E, F apart, T = H of order N or C of order n: |AB|^2 + (|A|^2 |B|^2 + (k-1) sum_i A2_i g_i
 *               sum_i B2_i g_i)
 *               / k, A2_i = |A_:i|^2, B2_i = |B_i:|^2, g_i = ((sum_r T_ri)^2 - 1) / (order - 1): two rows r,
 *                 s drawn without
 *               replacement have E T_ri T_si = g_i / order. g_0 = 1 for H, whose first column is constant: a
 *                 sink at
 *               the first key costs separate transforms their averaging.
 * One run is judged by Markov's inequality: p = mean / error^2. It sees the projection, not the output: blind
 * to zeros (whose error |AB|^2 is below the mean as a rule), to the mean of V and to random keys. */
#include "experiments/mathematics/sketch.h"

#include "experiments/checks/table.h"
#include "experiments/evidence/rows.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/mathematics/vector.h"

static const double alpha = 1e-3;

void sketch_free(sketch *s) {
  free(s->product);
  s->product = NULL;
}

/* g_i of the transform. The sum of column i of C is (1 + sqrt(1/2) ((-1)^i cot(t/2) - 1)) / sqrt(n), t = pi
 * (2i+1) / 2n, by the closed form of sum_r cos(r t). */
static double column_gain(const sketch *s, int64_t i) {
  double n = (double)s->n, order = 1;
  if (s->law != ATTN_PROJECTION_DCT) {
    while (order < n) order *= 2;
    return i == 0 ? 1 : -1 / (order - 1);
  }
  double half = acos(-1) * (2 * (double)i + 1) / (4 * n);
  double sum = (1 + sqrt(0.5) * ((i % 2 ? -1 : 1) / tan(half) - 1)) / sqrt(n);
  return n > 1 ? (sum * sum - 1) / (n - 1) : 1;
}

/* Squares of the columns of A and of the rows of V, and the sums of the formulas. */
static attn_status sketch_measure(sketch *s) {
  double *a2 = calloc((size_t)s->n, sizeof *a2), *v2 = calloc((size_t)s->n, sizeof *v2);
  attn_status status = a2 && v2 ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the squares of weights");
  for (int64_t i = 0; i < s->n && status == ATTN_OK; i++) {
    for (int64_t r = 0; r < s->rows; r++) a2[i] += s->a[r][i] * s->a[r][i];
    for (int64_t l = 0; l < s->d_v; l++) v2[i] += s->v[i * s->d_v + l] * s->v[i * s->d_v + l];
    s->a_norm += a2[i];
    s->v_norm += v2[i];
    s->cross += a2[i] * v2[i];
    s->a_gain += a2[i] * column_gain(s, i);
    s->v_gain += v2[i] * column_gain(s, i);
  }
  for (int64_t i = 0; i < s->n && status == ATTN_OK; i++) {
    int64_t other = s->n - 1 - i;
    double a = 0, v = 0;
    for (int64_t r = 0; r < s->rows; r++) a += s->a[r][i] * s->a[r][other];
    for (int64_t l = 0; l < s->d_v; l++) v += s->v[i * s->d_v + l] * s->v[other * s->d_v + l];
    s->mirrored += a * v;
    s->reflected += a2[i] * v2[other];
    if (i == other) s->middle += a2[i] * v2[i];
  }
  for (int64_t i = 0; i < s->rows * s->d_v; i++) s->product_norm += s->product[i] * s->product[i];
  free(a2);
  free(v2);
  return status;
}

/* sum over all pairs of n tau - (a.b)^2 */
static double dct_spread(const sketch *s) {
  double n = (double)s->n, flat = (n - 1) / (n * n), both = s->a_norm * s->v_norm;
  double squares = flat * both + (s->cross + s->reflected) / (2 * n);
  double products = 2 * (flat * s->product_norm + (s->cross + s->mirrored) / (2 * n));
  double diagonal = 2 * ((flat + 1 / (2 * n)) * s->cross + s->middle / (2 * n));
  return n * (squares + products - diagonal) - s->product_norm;
}

/* (order - k) / (k (order - 1)): what is left to chance by rows drawn without replacement. */
static double drawn(double order, double k) { return order > 1 ? (order - k) / (k * (order - 1)) : 0; }

double sketch_mean(const sketch *s, double k) {
  double both = s->a_norm * s->v_norm, order = 1;
  bool dense = s->law == ATTN_PROJECTION_GAUSSIAN || s->law == ATTN_PROJECTION_RADEMACHER;
  while (order < (double)s->n) order *= 2;
  if (!s->shared) return s->product_norm + (both + (dense ? 0 : (k - 1) * s->a_gain * s->v_gain)) / k;
  if (s->law == ATTN_PROJECTION_GAUSSIAN) return (both + s->product_norm) / k;
  if (s->law == ATTN_PROJECTION_RADEMACHER) return (both + s->product_norm - 2 * s->cross) / k;
  if (s->law == ATTN_PROJECTION_SRHT) return drawn(order, k) * (both + s->product_norm - 2 * s->cross);
  return drawn((double)s->n, k) * dct_spread(s);
}

/* The rows of A are projected d_qk at a time, as keys are. */
attn_status sketch_error(const probe *p, const sketch *s, double *error) {
  int64_t d = p->problem.d_qk, k = p->view.projection->slots, used = 0;
  double *x = malloc((size_t)(s->n * d) * sizeof *x), *ea = malloc((size_t)(k * d) * sizeof *ea);
  double *fv = malloc((size_t)(k * s->d_v) * sizeof *fv);
  attn_status status = x && ea && fv ? probe_project(p, ATTN_VALUE, s->v, s->d_v, fv, &used)
                                     : attn_fail(ATTN_ENOMEM, "no memory to project weights");
  for (int64_t first = 0; first < s->rows && status == ATTN_OK; first += d) {
    for (int64_t i = 0; i < s->n; i++)
      for (int64_t c = 0; c < d; c++) x[i * d + c] = first + c < s->rows ? s->a[first + c][i] : 0;
    status = probe_project(p, ATTN_KEY, x, d, ea, &used);
    for (int64_t c = 0; c < d && first + c < s->rows && status == ATTN_OK; c++)
      for (int64_t l = 0; l < s->d_v; l++) {
        double sum = -s->product[(first + c) * s->d_v + l];
        for (int64_t t = 0; t < k; t++) sum += ea[t * d + c] * fv[t * s->d_v + l];
        error[(first + c) * s->d_v + l] = sum;
      }
  }
  free(x);
  free(ea);
  free(fv);
  return status;
}

attn_status sketch_make(const evidence *e, const probe *p, sketch *out) {
  const exact_rows *x = e->exact;
  int64_t n = p->problem.n_kv, d_v = p->problem.d_v, have = 0;
  while (have < x->count && x->rows[have].batch == 0 && x->rows[have].head == 0) have++;
  sketch s = {.law = p->view.projection->law,
              .shared = p->view.projection->shared,
              .rows = have < SKETCH_ROWS ? have : SKETCH_ROWS,
              .n = n,
              .keys = p->head.keys,
              .d_v = d_v,
              .v = p->head.v,
              .product = calloc((size_t)(SKETCH_ROWS * d_v), sizeof *s.product)};
  if (!s.product) return attn_fail(ATTN_ENOMEM, "no memory for the product of a sketch");
  for (int64_t r = 0; r < s.rows; r++) {
    int64_t at = r * have / s.rows;
    s.a[r] = x->p + at * n;
    memcpy(s.product + r * d_v, x->o + at * d_v, (size_t)d_v * sizeof *s.product);
  }
  attn_status status = sketch_measure(&s);
  if (status != ATTN_OK)
    sketch_free(&s);
  else
    *out = s;
  return status;
}

const char *sketch_missing(const attn_view *view) {
  if (!view->projection) return "no projection";
  if (view->projection->law == ATTN_PROJECTION_UNKNOWN)
    return "the variant describes no law of its projection: nothing to hold it against";
  return view->projection->law == ATTN_PROJECTION_AVERAGES ? "the projection is not random" : NULL;
}

/* -- LIN-1 and LIN-2, both of the same projected product -- */

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
  const char *why = sketch_missing(e->view);
  if (!why && jl && (e->view->projection->law != ATTN_PROJECTION_GAUSSIAN || !e->view->projection->shared))
    why = "no Gaussian projection that keys and values share";
  if (why) {
    bound_not_applicable(bound, why);
    return ATTN_OK;
  }
  probe *p;
  attn_status status = probe_get(e, &p);
  if (status != ATTN_OK) return status;
  if (!p->head.finite) {
    bound_uncertifiable(bound, row_reason(ROW_INFINITE));
    return ATTN_OK;
  }
  if ((status = sketch_make(e, p, &s)) != ATTN_OK) return status;
  double *error = malloc((size_t)(s.rows * s.d_v) * sizeof *error + 1);
  status =
      error ? sketch_error(p, &s, error) : attn_fail(ATTN_ENOMEM, "no memory for the errors of a sketch");
  if (status == ATTN_OK && jl)
    products_judge(&s, p->view.projection->slots, error, bound);
  else if (status == ATTN_OK)
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
    .kind = KIND_PROB,
    .statement = "the squared error of the projected product exceeds its exact mean by a factor t with "
                 "probability 1/t",
    .source = "derived: Isserlis, sign pairings, finite-population variance, with Markov",
    .formula = "For A exact weights, B = V, E and F of k rows, X = sum_i |A_:i|^2 |B_i:|^2, the mean of |A "
               "E' F B - A B|^2 "
               "is: F = E gaussian: (|A|^2 |B|^2 + |AB|^2) / k; rademacher: less 2X / k; srht of order N: "
               "(N-k) / (k (N-1)) "
               "times (|A|^2 |B|^2 + |AB|^2 - 2X); dct: (n-k) / (k (n-1)) (n tau - |AB|^2), tau = sum over "
               "rows a of A and "
               "columns b of B of a2' G b2 + 2 (ab)' G (ab) - 2 sum_i G_ii a_i^2 b_i^2, elementwise, G_ij = "
               "(n-1)/n^2 + "
               "([i=j] + [j=n-1-i]) / 2n. E and F apart: gaussian and rademacher |AB|^2 + |A|^2 |B|^2 / k; "
               "srht and dct "
               "|AB|^2 + (|A|^2 |B|^2 + (k-1) sum_i |A_:i|^2 g_i sum_i |B_i:|^2 g_i) / k, g_i = ((sum_r "
               "T_ri)^2 - 1) / "
               "(order - 1) of the transform T. p = mean / error^2.",
    .assumes = "A random projection whose law is known (gaussian, rademacher, srht, dct); not causal.",
    .nulls =
        CHECK_BLIND("the projected product is computed from the projection itself; no output is looked at"),
    .evaluate = mean_evaluate,
};

const check check_lin2 = {
    .name = "LIN-2",
    .kind = KIND_PROB,
    .statement =
        "no projected product of a row of weights and a column of values is further off than a Gaussian "
        "projection of k rows allows",
    .source = "Johnson-Lindenstrauss by polarisation; Dasgupta and Gupta 2003 bound the same tail",
    .formula = "For one pair, |a R'R b - a.b| > t |a| |b| has probability at most 2 P(|chi^2_k / k - 1| > t) "
               "<= 4 exp(-k "
               "(t^2/4 - t^3/6)). measured = the largest over rows of exact weights and columns of V, value "
               "its limit at "
               "alpha = 1e-3, p = the number of pairs times the probability. Required: k >= ln(4 n d_v / "
               "alpha) / (t^2/4 - "
               "t^3/6) for all n rows. Linformer's own Lemma 1, t |a.b| on the right, is false for a "
               "orthogonal to b.",
    .assumes = "A Gaussian projection that keys and values share; the product itself is projected, not the "
               "scores. Not causal.",
    .nulls =
        CHECK_BLIND("the projected product is computed from the projection itself; no output is looked at"),
    .evaluate = products_evaluate,
};
