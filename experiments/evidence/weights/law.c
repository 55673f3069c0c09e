/* law.c - see law.h. */
#include "experiments/evidence/weights/law.h"

#include <math.h>

/* Moments are sums and quotients in fp64; of a key that is always taken they are 1. */
static const double rounding = 0x1p-40;

void weight_moments(const attn_selector *x, const attn_query *query, const int64_t *keys, int64_t count,
                    double *m) {
  x->moments(x->state, query, keys, count, m);
  for (int64_t i = 0; i < count * count; i++) m[i] = fabs(m[i] - 1) <= rounding ? 0 : m[i] - 1;
}

bool weight_always(const double *m, int64_t count, int64_t place) { return m[place * count + place] == 0; }

void weight_variances(const double *m, int64_t count, const double *p, const double *x, int64_t columns,
                      double *variance) {
  for (int64_t c = 0; c < columns; c++) variance[c] = 0;
  for (int64_t a = 0; a < count; a++) {
    if (weight_always(m, count, a)) continue;
    for (int64_t b = 0; b < count; b++) {
      const double factor = p[a] * p[b] * m[a * count + b];
      if (factor == 0) continue;
      for (int64_t c = 0; c < columns; c++) variance[c] += factor * x[a * columns + c] * x[b * columns + c];
    }
  }
  for (int64_t c = 0; c < columns; c++)
    if (variance[c] < 0) variance[c] = 0;
}

double inclusion_probability(double log_weight, double draws) {
  return draws > 0 ? -expm1(draws * log1p(-exp(-log_weight) / draws)) : exp(-log_weight);
}

double joint_inclusion_probability(double log_weight, double other, double excess, double draws) {
  if (!(draws > 0)) return (1 + excess) * exp(-log_weight - other);
  const double one = exp(-log_weight) / draws, two = exp(-other) / draws;
  return 1 - pow(1 - one, draws) - pow(1 - two, draws) + pow(fmax(0, 1 - one - two), draws);
}
