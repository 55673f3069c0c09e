/* feature_maps.c - features by definition, with the rounding of those that are compared with them. */
#include "experiments/mathematics/feature_maps.h"

#include "experiments/mathematics/vector.h"

#include <math.h>

static const double unit = 0x1p-53, reading = 0x1p-46, smallest = 0x1p-1000;

int64_t features_columns(const feature_law *law) {
  bool twofold = law->kind == ATTN_FEATURES_HYPERBOLIC || law->kind == ATTN_FEATURES_TRIG;
  return twofold ? 2 * law->m : law->m;
}

bool features_fill(const feature_law *law, const double *w, const double *x, double scale, double *f,
                   double *error) {
  int64_t d = law->d, m = law->m;
  const double b = sqrt(1 - 4 * law->a), log_factor = (double)d / 4 * log1p(-4 * law->a);
  double norm = vector_norm(x, d), half = norm * norm / 2, size = 0, terms = (double)(d + 8);
  /* Of |x|^2 / 2 and the scale, in an exponent. */
  double exponent = terms * unit * half + 8 * unit * (fabs(scale) + fabs(log_factor) + 1);
  for (int64_t l = 0; l < d; l++) size += fabs(x[l]);
  for (int64_t r = 0; r < m; r++) {
    double length = vector_norm(w + r * d, d), weight = law->a * length * length;
    double t = b * vector_dot(w + r * d, x, d);
    double read = reading * (1 + length + fabs(weight) + fabs(log_factor)),
           read_weight = 2 * fabs(law->a) * length * sqrt((double)d) * read;
    double off = terms * unit * (b * length * norm + fabs(weight)) + b * read * size + read_weight;
    if (!(off + exponent + 8 * unit * (fabs(t) + half) < 0.25)) return false;
    if (law->kind == ATTN_FEATURES_RELU) {
      f[r] = fmax(t, 0) * exp(-scale);
      error[r] = off * exp(-scale) + exponent * f[r];
    } else if (law->kind == ATTN_FEATURES_TRIG) {
      double factor = exp(half - scale);
      f[r] = factor * cos(t);
      f[m + r] = factor * sin(t);
      error[r] = error[m + r] = factor * (off + 8 * unit + exponent);
    } else {
      for (int64_t c = r; c < features_columns(law); c += m) {
        double power = (c < m ? t : -t) + weight + log_factor - half - scale;
        f[c] = exp(power);
        error[c] = f[c] * expm1(off + exponent + 8 * unit * fabs(power)) + smallest;
      }
    }
    for (int64_t c = r; c < features_columns(law); c += m)
      if (!isfinite(f[c]) || !isfinite(error[c])) return false;
  }
  return true;
}
