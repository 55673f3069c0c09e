/* moments.c - sums over pairs of keys. */
#include "experiments/mathematics/moments.h"

#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>

/* p_i p_j (h(t) - 1); the weights as logarithms where h may overflow and they underflow. */
static double excess(bool exponential, double log_p, double t) {
  if (exponential) return t > 50 ? exp(log_p + t) : exp(log_p) * expm1(t);
  if (fabs(t) > 50) return exp(log_p + fabs(t)) / 2;
  double half = sinh(t / 2);
  return exp(log_p) * 2 * half * half;
}

/* Adds the pairs (i, j), j <= i, to rho and spread of each row. */
static void moment_pairs(const moment_input *x, int64_t i, row_moment *sums) {
  double sign = x->kind == ATTN_FEATURES_TRIG ? -1 : 1;
  for (int64_t j = 0; j <= i; j++) {
    double keys = vector_dot_fast(x->k + i * x->d, x->k + j * x->d, x->d);
    for (int64_t r = 0; r < x->count; r++) {
      const moment_row *row = &x->rows[r];
      if (i >= row->count) continue;
      const double *a = row->away + i * x->d_v, *b = row->away + j * x->d_v;
      double t = row->x_square + sign * (row->along[i] + row->along[j]) + x->scale * keys;
      double share =
          (i == j ? 1 : 2) * excess(x->kind == ATTN_FEATURES_POSITIVE, row->log_p[i] + row->log_p[j], t);
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
