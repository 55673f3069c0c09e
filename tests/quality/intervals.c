/* intervals.c - 95 % intervals hold the truth about as often as they say. */
#include <criterion/criterion.h>
#include <math.h>

#include "attn_variant.h"
#include "experiments/mathematics/intervals.h"
#include "experiments/mathematics/statistics.h"

enum { TRIALS = 4000, UNITS = 12 };

/* Within five standard errors of a share of 95 % among the trials. */
static void expect_covered(const char *what, int covered, double least, double most) {
  const double slack = 5 * sqrt(0.95 * 0.05 / TRIALS), share = (double)covered / TRIALS;
  cr_expect(share >= least - slack && share <= most + slack, "%s: %g covered", what, share);
}

Test(quality_intervals, cover) {
  int of_mean = 0, of_share = 0, of_difference = 0;
  attn_rng rng;
  attn_rng_init(&rng, 20260103, 0, 0);
  for (int t = 0; t < TRIALS; t++) {
    double x[UNITS], a[60], b[60];
    int64_t hits = 0;
    for (int i = 0; i < UNITS; i++) x[i] = 3 + 2 * attn_rng_normal(&rng);
    const interval mean = interval_of_mean(x, UNITS);
    of_mean += mean.lo <= 3 && 3 <= mean.hi;
    for (int i = 0; i < 60; i++) {
      hits += attn_rng_uniform(&rng) < 0.3;
      a[i] = attn_rng_uniform(&rng) < 0.6;
      b[i] = attn_rng_uniform(&rng) < 0.4;
    }
    const interval share = interval_of_share(hits, 60);
    of_share += share.lo <= 0.3 && 0.3 <= share.hi;
    if (t % 8) continue; /* 10,000 resamples each */
    const interval difference = interval_of_difference(a, b, 60, (uint64_t)t);
    of_difference += difference.lo <= 0.2 && 0.2 <= difference.hi;
  }
  expect_covered("mean", of_mean, 0.95, 0.95);
  /* Exact coverages: Clopper and Pearson's at n = 60, p = 0.3 is 0.9665; the bootstrap's, of steps of 1/60,
   * near 0.94. */
  expect_covered("share", of_share, 0.9665, 0.9665);
  expect_covered("difference", 8 * of_difference, 0.9, 0.98);
}

Test(quality_intervals, known_values) {
  const double x[] = {1, 2, 3, 4, 5, 6, 7, 8};
  const interval mean = interval_of_mean(x, 8); /* 4.5 +- 2.364624 sqrt(6 / 8) */
  cr_expect(fabs(mean.at - 4.5) < 1e-12 && fabs(mean.hi - mean.at - 2.3646242515927853 * sqrt(0.75)) < 1e-9);
  const interval ten = interval_of_share(0, 10); /* (1 - p)^10 = 0.025 */
  cr_expect(ten.at == 0 && ten.lo == 0 && fabs(ten.hi - (1 - pow(0.025, 0.1))) < 1e-12, "%.17g", ten.hi);
  cr_expect(interval_of_share(10, 10).hi == 1);
  const interval half =
      interval_of_share(5, 10); /* Clopper and Pearson: P(X >= 5) = 0.025 at the lower end */
  cr_expect(fabs(half.lo - 0.18708602844739852) < 1e-12 && fabs(half.lo + half.hi - 1) < 1e-12, "%.17g",
            half.lo);
}

Test(quality_intervals, few_units_have_none) {
  const double x[] = {1, 2, 3, 4, 5, 6, 7};
  cr_expect(interval_of_mean(x, 7).at == 4 && isnan(interval_of_mean(x, 7).lo));
  cr_expect(isnan(interval_of_share(3, 7).hi) && isnan(interval_of_mean(x, 0).at));
  cr_expect(isnan(interval_of_difference(x, x, 7, 0).lo) && isnan(interval_of_share(0, 0).at));
}
