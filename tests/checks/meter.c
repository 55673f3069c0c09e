/* meter.c - the constants of the laboratory's own statistics, against values that were computed elsewhere:
 * from the formulas as their authors print them (in Python), from tables of quantiles, or by hand.
 * Simulations cannot see a wrong constant in a bound that is far from tight. */
#include "tests/support/checks_case.h"

#include "experiments/analysis/fit.h"
#include "experiments/evidence/certify.h"
#include "experiments/evidence/columns.h"
#include "experiments/instruments/timing.h"
#include "experiments/mathematics/statistics.h"

/* Relative to 1e-12, as sums in another order agree. */
static void expect_close(double got, double expected, const char *what) {
  cr_expect(fabs(got - expected) <= 1e-12 * fabs(expected), "%s: %.17g, expected %.17g", what, got, expected);
}

/* -- certificates -- */

/* Bardenet & Maillard 2015, Theorem 4.3, on both sides: failure probability 0.025, half of 0.05 being
 * Hoeffding's. */
Test(checks_meter, bernstein_serfling_as_printed) {
  const certify_stratum few[] = {{20000, 8000, 0.5, 0.01, 1}}, most[] = {{20000, 15000, 0.5, 0.01, 1}};
  expect_close(certify_half_width(few, 1, 0.05), 0.003636036475423213, "at most half of the rows");
  expect_close(certify_half_width(most, 1, 0.05), 0.0019206520780891906, "more than half of the rows");
}

/* Two strata that are sampled share the probability; a third that is complete takes none. */
Test(checks_meter, strata_share_the_probability) {
  const certify_stratum strata[] = {
      {100000, 40000, 0.5, 0.02, 1}, {300000, 90000, 0.2, 0.01, 0.5}, {1, 1, 0.5, 0, 1}};
  expect_close(certify_half_width(strata, 2, 0.05), 0.00045746918814437926, "two strata");
  expect_close(certify_half_width(strata, 3, 0.05), 0.00045746918814437926 * 400000 / 400001, "and a census");
}

/* Hoeffding 1963: sqrt(ln(2 / 0.025) / 2 * sum of (w b)^2 / s), four strata of four rows. */
Test(checks_meter, hoeffding_as_printed) {
  certify_stratum strata[4];
  for (int h = 0; h < 4; h++) strata[h] = (certify_stratum){128, 4, 0.5, 0.5, 1};
  expect_close(certify_half_width(strata, 4, 0.05), 0.37005179682519956, "four strata");
}

/* -- tests of means: products of (1 + x + x^2/2) / (1 + a^2 sigma^2 / 2), summed with Python -- */

Test(checks_meter, a_product_for_each_sign_and_size) {
  double same[100], apart[100];
  for (int i = 0; i < 100; i++) {
    same[i] = 3.6;
    apart[i] = i % 2 ? 2.5 : -1.5;
  }
  expect_close(mean_p_value(same, 100, 3, 1, 0), 2.0263426836642967e-08, "one value");
  expect_close(mean_p_value(apart, 100, 0, 1.5, 0), 0.04339768242923526, "two values");
  expect_close(mean_critical_value(1e-3, 1, 100), 0.41712143910880894, "limit");
}

Test(checks_meter, signs_are_coins) {
  expect_close(signs_p_value(9, 10), 0.03484474927898703, "2 exp(-81 / 20)");
  cr_expect_eq(signs_p_value(0, 10), 1);
  cr_expect_eq(signs_p_value((double)NAN, 10), 0);
}

/* -- tests -- */

/* Massart 1990: 2 exp(-2 n D^2). Twenty levels (i + 0.5) / 20, moved up by 0.3 - 0.025, at most to 1. */
Test(checks_meter, the_kolmogorov_distance_as_massart_has_it) {
  double levels[20];
  for (int i = 0; i < 20; i++) levels[i] = fmin(1, (i + 0.5) / 20 + 0.275);
  cr_expect_float_eq(dkw_p_value(levels, 20), 0.05464744489458514, 1e-12);
}

/* -- intervals -- */

/* 64 of 4200 rows in 16 strata of four: |o^ - o|^2 is 1 on every row but the first of a stratum, where it is
 * `high`, and |o|^2 is 1. The ratio, its standard error with the finite-population factor, and Student's 97.5
 * % quantile of 48 degrees of freedom, 2.0106347576, by hand. */
Test(checks_meter, the_interval_of_the_error_is_of_95_percent) {
  enum { N = 4200, STRATA = 16, EACH = 4 };
  attn_problem p = attn_problem_make(1, 1, N, 1);
  p.n_kv = 1;
  p.dtype = ATTN_F64;
  run_case *c = case_make(p, 1, 1);
  exact_rows *x;
  result_row row = row_empty();
  cr_assert_eq(exact_rows_compute(&p, c->q, c->k, c->v, NULL, 1, &x), ATTN_OK);
  cr_assert_eq(x->count, STRATA * EACH);
  double *o = c->o, variance = 0, mean = 0;
  for (int r = 0; r < STRATA * EACH; r++) {
    x->o[r] = 1;
    o[x->rows[r].i] = r % EACH == 0 ? 1 + sqrt(3) : 2;
  }
  for (int h = 0; h < STRATA; h++) {
    const double size = (h + 1) * N / STRATA - h * N / STRATA;
    mean += size / N * 1.5;                                 /* three times 1, and 3 */
    variance += size * size * (1 - EACH / size) / EACH * 1; /* of 3, 1, 1, 1 */
  }
  const double half = 2.0106347576 * sqrt(variance) / N;
  cr_assert_eq(evidence_errors(&(evidence){.problem = &p, .o = o, .exact = x}, &row), ATTN_OK);
  cr_expect_float_eq(row.err_rel_fro, sqrt(mean), 1e-12);
  cr_expect_float_eq(row.err_rel_fro_lo, sqrt(mean - half), 1e-9);
  cr_expect_float_eq(row.err_rel_fro_hi, sqrt(mean + half), 1e-9);
  const double apart = (sqrt(3) - 1) / 2; /* the deviation of sqrt(3), 1, 1, 1 */
  cr_expect_float_eq(row.err_rel_l2_mean, 1 + apart / 2, 1e-12);
  cr_expect_float_eq(row.err_rel_l2_mean_lo, 1 + apart / 2 - half * apart, 1e-9);
  cr_expect_float_eq(row.err_rel_l2_mean_hi, 1 + apart / 2 + half * apart, 1e-9);
  result_row_free(&row);
  exact_rows_free(x);
}

/* Of 10,000 values in a row the middle 95 % lie between the 251st and the 9750th. */
Test(checks_meter, a_bootstrap_interval_is_of_95_percent) {
  static double values[10000];
  double low, high;
  for (int i = 0; i < 10000; i++) values[i] = (i * 3) % 10000;
  timing_interval(values, 10000, &low, &high);
  cr_expect(low == 250 && high == 9749, "%g ... %g", low, high);
}

/* log y = 2 log n + (1, -2, 1, 0) / 10 at log n = 0, 1, 2, 3: slope, residuals and Student's quantile of 2
 * degrees of freedom, 4.3026527297, by hand; sigma 0.01, so that the scatter decides. */
Test(checks_meter, an_exponent_has_a_95_percent_interval) {
  const double noise[] = {0.1, -0.2, 0.1, 0};
  double n[4], y[4], sigma[4], slope = 2, residuals = 0, mean = 0;
  for (int i = 0; i < 4; i++) {
    n[i] = exp(i);
    y[i] = exp(2 * i + noise[i]);
    sigma[i] = 0.01;
    slope += (i - 1.5) * noise[i] / 5;
    mean += noise[i] / 4;
  }
  for (int i = 0; i < 4; i++) residuals += pow(noise[i] - mean - (slope - 2) * (i - 1.5), 2);
  const double half = 4.3026527297 * sqrt(residuals / 2 / 5);
  fit_power f;
  cr_assert_eq(fit_exponent(n, y, sigma, 4, &f), ATTN_OK);
  cr_expect_float_eq(f.exponent.mid, slope, 1e-9);
  cr_expect_float_eq(f.exponent.hi - f.exponent.mid, half, 1e-9);
  cr_expect_float_eq(f.exponent.mid - f.exponent.lo, half, 1e-9);
}
