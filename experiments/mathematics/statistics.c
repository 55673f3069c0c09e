/* statistics.c - tests of means, of distributions and of coins. */
#include "experiments/mathematics/statistics.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>

double median_of(double *values, size_t count) {
  size_t kept = 0;
  for (size_t i = 0; i < count; i++)
    if (!isnan(values[i])) values[kept++] = values[i];
  return kept ? gsl_stats_median(values, 1, kept) : (double)NAN;
}

double median_of_means(double *values, int64_t count) {
  int64_t size = count / MEAN_GROUPS;
  for (int64_t g = 0; g < MEAN_GROUPS; g++) {
    double sum = 0;
    for (int64_t i = 0; i < size; i++) sum += values[g * size + i];
    if (isnan(sum)) return sum;
    values[g] = sum / (double)size; /* at or before what was read */
  }
  return gsl_stats_median(values, 1, MEAN_GROUPS);
}

/* Half of the groups or more err. */
static double half_err(double q) { return q < 1 ? gsl_cdf_binomial_Q(MEAN_GROUPS / 2, q, MEAN_GROUPS) : 1; }

static double group_sigma(double sigma, int64_t count) { return sigma / sqrt((double)(count / MEAN_GROUPS)); }

double median_p_value(double deviation, double sigma, int64_t count) {
  if (isnan(deviation)) return 0;
  double ratio = group_sigma(sigma, count) / deviation;
  return deviation > 0 ? half_err(ratio * ratio) : 1;
}

double median_limit(double alpha, double sigma, int64_t count) {
  const double most = MEAN_GROUPS / 2 + 1; /* P(half err) = P(B <= q) of a Beta variable B */
  return group_sigma(sigma, count) / sqrt(gsl_cdf_beta_Pinv(alpha, most, MEAN_GROUPS + 1 - most));
}

double levels_p_value(double *levels, int64_t count) {
  double gap = 0, n = (double)count;
  gsl_sort(levels, 1, (size_t)count);
  for (int64_t i = 0; i < count; i++) {
    if (isnan(levels[i])) return 0;
    gap = fmax(gap, fmax(levels[i] - (double)i / n, (double)(i + 1) / n - levels[i]));
  }
  return fmin(1, 2 * exp(-2 * n * gap * gap));
}

double coin_p_value(int64_t hits, int64_t count) {
  unsigned k = (unsigned)hits, n = (unsigned)count;
  double below = gsl_cdf_binomial_P(k, 0.5, n), above = k > 0 ? gsl_cdf_binomial_Q(k - 1, 0.5, n) : 1;
  return fmin(1, 2 * fmin(below, above));
}
