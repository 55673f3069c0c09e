/* draws.c - FAV-3: the random vectors w_r of FAVOR+ are orthogonal within blocks of d and have the right
 * lengths.
 *
 * They are read off the feature map, at +-a e_l in fp64: positive features are exp(scale) f = exp(w.x -
 * |x|^2/2), so w_l = (ln phi(a e_l) - ln phi(-a e_l)) / 2a; cosine and sine give the angle; rectified
 * features their difference. It judges the draws and never sees an output: blind to zeros, the mean of V and
 * random keys. */
#include "checks/draws.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double read_component(const char *kernel, const double *f, double scale, const double *g, double other,
                             int64_t m, double a) {
  if (strcmp(kernel, "trig") == 0) return atan2(f[m], f[0]) / a;
  if (strcmp(kernel, "relu") == 0) return (f[0] - g[0]) / a;
  return (log(f[0]) + scale - log(g[0]) - other) / (2 * a);
}

attn_status draws_read(const probe *p, const char *kernel, draws *out) {
  const attn_feature_map *map = p->view.features;
  const attn_context *c = attn_plan_context(p->plan);
  int64_t d = out->d, m = out->m, columns = map->columns;
  /* A quarter of the scale of the keys' own units: angles stay far below pi, exponentials near 1. */
  double a = 0.25 / sqrt(p->problem.scale);
  double *f = malloc((size_t)(2 * columns) * sizeof *f), *x = calloc((size_t)(2 * d), sizeof *x), scale[2];
  attn_status status = ATTN_OK;
  out->w = malloc((size_t)(m * d) * sizeof *out->w);
  if (!f || !x || !out->w) {
    status = attn_fail(ATTN_ENOMEM, "no memory for the random vectors of a feature map");
    goto out;
  }
  for (int64_t l = 0; l < d; l++) {
    x[l] = a;
    x[d + l] = -a;
    map->map(map->state, c, 0, ATTN_KEY, x, d, 2, f, columns, scale);
    x[l] = x[d + l] = 0;
    for (int64_t r = 0; r < m; r++)
      out->w[r * d + l] =
          read_component(kernel, f + r, scale[0], f + columns + r, scale[1], m, a * sqrt(p->problem.scale));
  }
out:
  free(f);
  free(x);
  return status;
}

static double dot(const double *x, const double *y, int64_t d) {
  double sum = 0;
  for (int64_t l = 0; l < d; l++) sum += x[l] * y[l];
  return sum;
}

/* Largest |cos| between two vectors of a block. */
static double worst_angle(const draws *w) {
  double worst = 0;
  for (int64_t r = 0; r < w->m; r++)
    for (int64_t s = r / w->d * w->d; s < r; s++) {
      const double *x = w->w + r * w->d, *y = w->w + s * w->d;
      double cosine = fabs(dot(x, y, w->d)) / sqrt(dot(x, x, w->d) * dot(y, y, w->d));
      if (!(cosine <= worst)) worst = cosine;
    }
  return worst;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* p-value of |w|^2 ~ chi^2_d: P(sup |F_m - F| > t) <= 2 exp(-2 m t^2) for every m (Massart 1990). */
static attn_status length_p_value(const draws *w, double *p_value) {
  double *squares = malloc((size_t)w->m * sizeof *squares), gap = 0, m = (double)w->m;
  if (!squares) return attn_fail(ATTN_ENOMEM, "no memory for the lengths of random vectors");
  for (int64_t r = 0; r < w->m; r++) squares[r] = dot(w->w + r * w->d, w->w + r * w->d, w->d);
  qsort(squares, (size_t)w->m, sizeof *squares, ascending);
  for (int64_t r = 0; r < w->m; r++) {
    double f = gsl_cdf_chisq_P(squares[r], (double)w->d);
    gap = fmax(gap, fmax(f - (double)r / m, (double)(r + 1) / m - f));
  }
  free(squares);
  *p_value = fmin(1, 2 * exp(-2 * m * gap * gap));
  return ATTN_OK;
}

static attn_status draws_judge(const draws *w, bool constant, result_bound *bound) {
  /* Components are stored in fp32 (u each, so 2 u in a cosine, u in a length), QR in fp64 is off by sqrt(d)
   * gamma of a modest multiple of d^2 (Higham 2002, Thm 19.4), and reading them by a few ulps of a logarithm.
   */
  double d = (double)w->d, u = 0x1p-24, reading = sqrt(d) * 0x1p-46;
  double tolerance = 2.01 * u + sqrt(d) * gamma_of(10 * w->d * w->d, 0x1p-53) + reading;
  outcome worst = {worst_angle(w), tolerance, NULL};
  for (int64_t r = 0; r < w->m && constant; r++)
    outcome_worsen(
        &worst, (outcome){fabs(sqrt(dot(w->w + r * w->d, w->w + r * w->d, w->d) / d) - 1), tolerance, NULL});
  outcome_settle(&worst, bound);
  if (constant || bound->verdict != VERDICT_PASS) return ATTN_OK;
  double p_value = 0;
  attn_status status = length_p_value(w, &p_value);
  if (status == ATTN_OK) bound_prob(bound, worst.measured, worst.value, p_value);
  return status;
}

static attn_status draws_evaluate(const evidence *e, result_bound *bound) {
  char kernel[32] = "", orthogonal[32] = "", norm[32] = "";
  double features = 0;
  if (!e->view->features || !plan_param(e->plan, "kernel", NULL, kernel, sizeof kernel) ||
      !plan_param(e->plan, "orthogonal", NULL, orthogonal, sizeof orthogonal) ||
      !plan_param(e->plan, "norm", NULL, norm, sizeof norm) ||
      !plan_param(e->plan, "features", &features, NULL, 0)) {
    bound_not_applicable(bound, "no random vectors");
    return ATTN_OK;
  }
  if (strcmp(orthogonal, "yes") != 0) {
    bound_not_applicable(bound, "the random vectors are drawn independently");
    return ATTN_OK;
  }
  probe *p;
  attn_status status = probe_get(e, &p);
  if (status != ATTN_OK) return status;
  draws w = {.m = (int64_t)features, .d = p->problem.d_qk};
  status = draws_read(p, kernel, &w);
  if (status == ATTN_OK) status = draws_judge(&w, strcmp(norm, "sqrt_d") == 0, bound);
  free(w.w);
  return status;
}

const check check_fav3 = {
    .name = "FAV-3",
    .kind = KIND_HARD,
    .statement =
        "random vectors of a block are orthogonal; their lengths are sqrt(d), or chi_d draws (p-value)",
    .source = "Choromanski et al. 2021, generator of the authors' code; Massart 1990; blind to the output",
    .formula = "|cos(w_r, w_s)| <= tolerance within blocks of d vectors; | |w_r|/sqrt(d) - 1 | <= "
               "tolerance for norm=sqrt_d; for norm=chi, sup |F_m - F| of |w_r|^2 against chi^2_d has "
               "P(> x) <= 2 exp(-2 m x^2).",
    .assumes = "Orthogonal random vectors, read off the feature map in fp64 at +-a e_l. The tolerance is "
               "the rounding of fp32 components, of the QR factorisation and of reading.",
    .nulls = CHECK_BLIND("the draws are the feature map's; no output is looked at"),
    .evaluate = draws_evaluate,
};
