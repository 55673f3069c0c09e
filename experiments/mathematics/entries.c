/* entries.c - moments of an entry by hypergeometric functions. */
#include "experiments/mathematics/entries.h"

#include <gsl/gsl_sf_hyperg.h>
#include <math.h>

/* Component l of b_k, an orthonormal basis with b_0 = (1, 1, ...) / sqrt(d): the reflection of the first axis
 * into it, the image of axis k. A generator whose vectors lean to one side shows along b_0. */
static double basis(int64_t d, int64_t k, int64_t l) {
  double unit = 1 / sqrt((double)d);
  if (d == 1) return 1;
  /* u = e_0 - b_0, |u|^2 = 2 (1 - unit), e_k - 2 u_k u / |u|^2 */
  double u_k = (k == 0) - unit, u_l = (l == 0) - unit;
  return (k == l) - u_k * u_l / (1 - unit);
}

void entry_point_make(int64_t d, int64_t turns, double z, double *x, double *y, entry_point *out) {
  *out = (entry_point){0, 0, 0};
  for (int64_t k = 0; k < turns; k++)
    for (int64_t l = 0; l < d; l++) {
      double half = sqrt(z) * basis(d, k, l) / 2, side = sqrt(z / 12) * basis(d, (k + 1) % d, l);
      if (d == 1) side = half * (1 - sqrt(3)) / (3 + sqrt(3));
      x[k * d + l] = half + side;
      y[k * d + l] = half - side;
    }
  for (int64_t l = 0; l < d; l++) {
    out->x_square += x[l] * x[l];
    out->y_square += y[l] * y[l];
    out->inner += x[l] * y[l];
  }
}

/* ln t_p, and what s is multiplied with; infinite where the moment is. */
static double weight(const feature_law *law, int p, double *stretch) {
  const double d = (double)law->d, a = law->a, left = 1 - 4 * p * a;
  *stretch = law->constant ? 1 - 4 * a : (1 - 4 * a) / left;
  if (!law->constant && left <= 0) return (double)INFINITY;
  return d / 2 * (p * log1p(-4 * a) + (law->constant ? 4 * p * a : -log(left)));
}

/* T_p. */
static double power(const feature_law *law, int p, double s) {
  double d = (double)law->d, stretch, log_t = weight(law, p, &stretch);
  if (isinf(log_t)) return log_t;
  return law->constant ? exp(log_t) * gsl_sf_hyperg_0F1(d / 2, d * stretch * s / 4)
                       : exp(log_t + stretch * s / 2);
}

/* The same of two vectors of a block. */
static double pair_power(const feature_law *law, int p, double s) {
  double d = (double)law->d, stretch, log_t = weight(law, p, &stretch);
  if (isinf(log_t)) return log_t;
  if (!law->orthogonal) return exp(2 * log_t + stretch * s);
  return exp(2 * log_t) * (law->constant ? gsl_sf_hyperg_0F1(d / 2, d * stretch * s / 2)
                                         : gsl_sf_hyperg_1F1(d, d / 2, stretch * s / 2));
}

double entry_single(const feature_law *law, double s) { return power(law, 1, s); }

double entry_pair(const feature_law *law, double s) { return pair_power(law, 1, s); }

double entry_square(const feature_law *law, double s) {
  double square = power(law, 2, 4 * s);
  return law->kind == ATTN_FEATURES_POSITIVE ? square : (square + 1) / 2;
}

/* Of cosh, (cosh 4t + 4 cosh 2t + 3) / 8. */
double entry_fourth(const feature_law *law, double s) {
  double fourth = power(law, 4, 16 * s);
  return law->kind == ATTN_FEATURES_POSITIVE ? fourth : (fourth + 4 * entry_single(law, 4 * s) + 3) / 8;
}

/* Of cosh a cosh b, (cosh 2a + 1)(cosh 2b + 1) / 4. */
double entry_pair_square(const feature_law *law, double s) {
  double square = pair_power(law, 2, 4 * s);
  return law->kind == ATTN_FEATURES_POSITIVE ? square : (square + 2 * entry_single(law, 4 * s) + 1) / 4;
}

double entry_exponent(const feature_law *law, double norms, double inner) {
  return law->kind == ATTN_FEATURES_TRIG ? 2 * inner - norms : 2 * inner + norms;
}

double entry_spread(const feature_law *law, double s) {
  double single = entry_single(law, s), m = (double)law->m,
         spread = (entry_square(law, s) - single * single) / m;
  return law->pairs > 0 ? spread + law->pairs / (m * m) * (entry_pair(law, s) - single * single) : spread;
}

static double turned(const feature_law *law, double alone, double across, int64_t turns) {
  double k = (double)turns;
  return fmax(0, alone + (k - 1) * across) / (k * law->independent);
}

double entry_mean_spread(const feature_law *law, double s, int64_t turns) {
  double mean = entry_single(law, s), square = mean * mean;
  return turned(law, entry_square(law, s) - square, power(law, 2, 2 * s) - square, turns);
}

double entry_square_spread(const feature_law *law, double s, int64_t turns) {
  double mean = entry_square(law, s), single = power(law, 2, 4 * s);
  double across = (power(law, 4, 8 * s) - single * single) / (law->kind == ATTN_FEATURES_POSITIVE ? 1 : 4);
  return turned(law, entry_fourth(law, s) - mean * mean, across, turns);
}

entry_moments entry_of(const feature_law *law, double x_square, double y_square, double inner) {
  double norms = x_square + y_square, s = entry_exponent(law, norms, inner);
  double factor = exp((law->kind == ATTN_FEATURES_TRIG ? 1 : -1) * norms / 2);
  return (entry_moments){factor * entry_single(law, s), factor * factor * entry_spread(law, s)};
}

void entry_rectified(const feature_law *law, double x_square, double y_square, double inner, double *mean,
                     double *square) {
  double pi = acos(-1), norms = sqrt(x_square * y_square), d = (double)law->d;
  double cosine = fmax(-1, fmin(1, inner / norms)), t = acos(cosine), sine = sin(t);
  *mean = norms * (sine + (pi - t) * cosine) / (2 * pi);
  *square = norms * norms * (3 * sine * cosine + (pi - t) * (1 + 2 * cosine * cosine)) / (2 * pi);
  if (law->constant) *square *= d / (d + 2);
}
