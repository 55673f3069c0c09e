/* pair_moments.c - sums over pairs of keys. */
#include "experiments/mathematics/pair_moments.h"

#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>

double moment_exponent(const feature_law *law, double i_square, double j_square, double inner) {
  const double a = law->a, d = (double)law->d;
  if (a == 0) return inner;
  return d * log1p(-4 * a) - d / 2 * log1p(-8 * a) + inner +
         2 * a / (1 - 8 * a) * (i_square + j_square + 2 * inner);
}

double moment_of_pair(const feature_law *law, const double *x, const double *y_i, const double *y_j) {
  const double sign = law->kind == ATTN_FEATURES_TRIG ? -1 : 1;
  double squares[2] = {0, 0}, inner = 0;
  for (int64_t l = 0; l < law->d; l++) {
    const double i = x[l] + sign * y_i[l], j = x[l] + sign * y_j[l];
    squares[0] += i * i;
    squares[1] += j * j;
    inner += i * j;
  }
  const double t = moment_exponent(law, squares[0], squares[1], inner);
  return law->kind == ATTN_FEATURES_POSITIVE ? exp(t) : cosh(t);
}

/* p_i p_j (h(t) - 1); the weights as logarithms where h may overflow and they underflow. */
static double excess(bool exponential, double log_p, double t) {
  if (exponential) return t > 50 ? exp(log_p + t) : exp(log_p) * expm1(t);
  if (fabs(t) > 50) return exp(log_p + fabs(t)) / 2;
  double half = sinh(t / 2);
  return exp(log_p) * 2 * half * half;
}

/* Adds the pairs (i, j), j <= i, to rho and spread of each row. */
static void moment_pairs(const moment_input *x, int64_t i, row_moment *sums) {
  const double sign = x->law->kind == ATTN_FEATURES_TRIG ? -1 : 1, *own = x->k + i * x->d;
  const bool weighted = x->law->a != 0;
  const double own_square = weighted ? x->scale * vector_dot_fast(own, own, x->d) : 0;
  for (int64_t j = 0; j <= i; j++) {
    const double *k = x->k + j * x->d;
    double keys = vector_dot_fast(own, k, x->d),
           square = weighted ? x->scale * vector_dot_fast(k, k, x->d) : 0;
    for (int64_t r = 0; r < x->count; r++) {
      const moment_row *row = &x->rows[r];
      if (i >= row->count) continue;
      const double *a = row->away + i * x->d_v, *b = row->away + j * x->d_v;
      double t = row->x_square + sign * (row->along[i] + row->along[j]) + x->scale * keys;
      t = moment_exponent(x->law, row->x_square + 2 * sign * row->along[i] + own_square,
                          row->x_square + 2 * sign * row->along[j] + square, t);
      double share =
          (i == j ? 1 : 2) * excess(x->law->kind == ATTN_FEATURES_POSITIVE, row->log_p[i] + row->log_p[j], t);
      sums[r].rho += share;
      sums[r].spread += share * vector_dot_fast(a, b, x->d_v);
    }
  }
}

attn_status moments_compute(const moment_input *x, row_moment *out) {
  row_moment *sums = calloc((size_t)(x->n * x->count) + 1, sizeof *sums);
  if (!sums) return attn_fail(ATTN_ENOMEM, "no memory for the moments of rows");
#pragma omp parallel for schedule(dynamic, 4)
  for (int64_t i = 0; i < x->n; i++) moment_pairs(x, i, sums + i * x->count);
  for (int64_t r = 0; r < x->count; r++) {
    out[r].rho = 1;
    out[r].spread = 0;
    for (int64_t i = 0; i < x->n; i++) {
      out[r].rho += sums[i * x->count + r].rho;
      out[r].spread += sums[i * x->count + r].spread;
    }
  }
  free(sums);
  return ATTN_OK;
}

double moment_collapse(const feature_law *law, const row_moment *row) {
  double spread = fmax(row->rho - 1, 0) / law->independent, x = law->share / (2 * spread);
  if (spread == 0) return 0;
  double bennett = exp(-spread / (law->share * law->share) * ((1 + x) * log1p(x) - x));
  return law->kind == ATTN_FEATURES_TRIG ? 4 * spread : fmin(4 * spread, bennett);
}
