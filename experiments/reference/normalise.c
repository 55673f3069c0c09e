/* normalise.c - see normalise.h. A sum of weights does not rise with tau: bisection down to neighbouring
 * numbers, whatever the function is. */
#include "experiments/reference/normalise.h"

#include <math.h>

static double sum_at(const attn_normaliser *x, int64_t n, const double *scores, double tau) {
  double sum = 0;
  for (int64_t j = 0; j < n; j++) sum += x->weight(x->state, n, scores[j] - tau);
  return sum;
}

/* A number from which the sum is at most the target, or up to which it is at least that. */
static double far_enough(const attn_normaliser *x, int64_t n, const double *scores, double target,
                         double way) {
  for (double step = 1; step < 0x1p40; step *= 2) {
    const double excess = sum_at(x, n, scores, way * step) - target;
    if (way > 0 ? excess <= 0 : excess >= 0) return way * step;
  }
  return (double)NAN;
}

double normalise_threshold(const attn_normaliser *x, int64_t n, const double *scores, double target,
                           bool above) {
  if (!x->sums) return 0;
  double low = far_enough(x, n, scores, target, -1), high = far_enough(x, n, scores, target, 1);
  while (high > low) {
    const double middle = low + (high - low) / 2;
    if (!(middle > low && middle < high)) break;
    if (sum_at(x, n, scores, middle) > target)
      low = middle;
    else
      high = middle;
  }
  return isnan(low) || isnan(high) ? (double)NAN : above ? high : low;
}
