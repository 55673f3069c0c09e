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
