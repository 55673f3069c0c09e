/* intervals.c - 95 % intervals of means, shares and differences, where they are known. */
#include <criterion/criterion.h>
#include <math.h>

#include "experiments/mathematics/intervals.h"

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
 * P(X <= 3) = 0.98; where all do, there is no other resample. */
Test(quality_intervals, resampled_differences) {
  const double none[60] = {0}, one[60] = {[7] = 1};
  double all[60];
  for (int i = 0; i < 60; i++) all[i] = 1;
  const double *const of[][2] = {{one, none}, {none, one}, {all, none}, {all, one}};
  static const interval wanted[] = {{1, 0, 3}, {-1, -3, 0}, {60, 60, 60}, {59, 57, 60}};
  for (int i = 0; i < 4; i++) {
    const interval x = interval_of_difference(of[i][0], of[i][1], 60, 5);
    const double apart =
        fabs(60 * x.at - wanted[i].at) + fabs(60 * x.lo - wanted[i].lo) + fabs(60 * x.hi - wanted[i].hi);
    cr_expect(apart < 1e-12, "%d: %g, %g, %g", i, x.at, x.lo, x.hi);
  }
}

Test(quality_intervals, few_units_have_none) {
  const double x[] = {1, 2, 3, 4, 5, 6, 7};
  cr_expect(interval_of_mean(x, 7).at == 4 && isnan(interval_of_mean(x, 7).lo));
  cr_expect(isnan(interval_of_share(3, 7).hi) && isnan(interval_of_mean(x, 0).at));
  cr_expect(isnan(interval_of_difference(x, x, 7, 0).lo) && isnan(interval_of_share(0, 0).at));
}
