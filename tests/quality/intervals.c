/* intervals.c - 95 % intervals hold the truth about as often as they say. */
#include <criterion/criterion.h>
#include <math.h>

#include "attn_variant.h"
#include "experiments/mathematics/intervals.h"
#include "tests/support/basics/rng.h"

/* Exact coverages: 0.95 of the mean's; Clopper and Pearson's at n = 60, p = 0.3 is 0.9665. */
Test(quality_intervals, cover) {
  enum { TRIALS = 4000, UNITS = 12 };
  int of_mean = 0, of_share = 0;
  attn_rng rng = rng_of(20260103, 0, 0);
  for (int t = 0; t < TRIALS; t++) {
    double x[UNITS];
    int64_t hits = 0;
    for (int i = 0; i < UNITS; i++) x[i] = 3 + 2 * attn_rng_normal(&rng);
    for (int i = 0; i < 60; i++) hits += attn_rng_uniform(&rng) < 0.3;
    const interval mean = interval_of_mean(x, UNITS), share = interval_of_share(hits, 60);
    of_mean += mean.lo <= 3 && 3 <= mean.hi;
    of_share += share.lo <= 0.3 && 0.3 <= share.hi;
  }
  const double slack = 5 * sqrt(0.95 * 0.05 / TRIALS); /* five standard errors */
  cr_expect_float_eq((double)of_mean / TRIALS, 0.95, slack);
  cr_expect_float_eq((double)of_share / TRIALS, 0.9665, slack);
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

/* The bootstrap's quantiles are a binomial law's: of 60 pairs of which one differs, P(X <= 2) = 0.92 and
 * P(X <= 3) = 0.98. */
Test(quality_intervals, resampled_differences) {
  const double of[2][60] = {{0}, {[7] = 1}};
  for (int i = 0; i < 2; i++) {
    const interval x = interval_of_difference(of[i], of[!i], 60, 5);
    const double sign = i ? 1 : -1, least = i ? x.lo : x.hi, most = i ? x.hi : x.lo;
    cr_expect(fabs(60 * x.at - sign) + fabs(60 * least) + fabs(60 * most - 3 * sign) < 1e-12, "%d: %g, %g", i,
              x.lo, x.hi);
  }
}

Test(quality_intervals, few_units_have_none) {
  const double x[] = {1, 2, 3, 4, 5, 6, 7};
  cr_expect(interval_of_mean(x, 7).at == 4 && isnan(interval_of_mean(x, 7).lo));
  cr_expect(isnan(interval_of_share(3, 7).hi) && isnan(interval_of_mean(x, 0).at));
  cr_expect(isnan(interval_of_difference(x, x, 7, 0).lo) && isnan(interval_of_share(0, 0).at));
}
