/* timing_summary.c - statistics of timing samples: order statistics, Tukey's fences, a bootstrap interval.
 *
 * Bootstrap of the median without drawing the resamples: item i of a sorted resample of n is x[ceil(n U)]
 * with U the i-th order statistic of n uniforms, U_(i) ~ Beta(i, n + 1 - i); given U_(i), the next one is
 * U_(i) + (1 - U_(i)) Beta(1, n - i) (David & Nagaraja, Order Statistics, 2.5). A resample costs O(1). */
#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/instruments/timing.h"

enum { RESAMPLES = 10000 };

static double at_uniform(const double *sorted, int64_t count, double u) {
  const double rank = ceil((double)count * u) - 1;
  const int64_t i = rank < 0 ? 0 : (int64_t)rank;
  return sorted[i < count ? i : count - 1];
}

double timing_resampled_median(gsl_rng *rng, const double *sorted, int64_t count) {
  const int64_t lower = (count + 1) / 2;
  const double u = gsl_ran_beta(rng, (double)lower, (double)(count + 1 - lower));
  const double x = at_uniform(sorted, count, u);
  if (count % 2) return x;
  const double next = u + (1 - u) * gsl_ran_beta(rng, 1, (double)(count - lower));
  return 0.5 * (x + at_uniform(sorted, count, next));
}

void timing_interval(double *values, size_t count, double *low, double *high) {
  gsl_sort(values, 1, count);
  *low = values[count / 40];
  *high = values[count - 1 - count / 40];
}

static int64_t tukey_outliers(const double *sorted, size_t count) {
  const double low = gsl_stats_quantile_from_sorted_data(sorted, 1, count, 0.25);
  const double high = gsl_stats_quantile_from_sorted_data(sorted, 1, count, 0.75);
  const double reach = 1.5 * (high - low);
  int64_t outliers = 0;
  for (size_t i = 0; i < count; i++) outliers += sorted[i] < low - reach || sorted[i] > high + reach;
  return outliers;
}

attn_status timing_summarise(const double *samples, int64_t count, uint64_t seed, timing_summary *summary) {
  attn_status status = ATTN_OK;
  const size_t size = (size_t)count;
  timing_summary out = {.std = (double)NAN, .ci_lo = (double)NAN, .ci_hi = (double)NAN};
  double *medians = malloc(RESAMPLES * sizeof *medians);
  double *sorted = malloc(size * sizeof *sorted);
  gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
  if (!medians || !sorted || !rng) {
    status = attn_fail(ATTN_ENOMEM, "no memory for the statistics of %zu timing samples", size);
    goto out;
  }
  memcpy(sorted, samples, size * sizeof *sorted);
  gsl_sort(sorted, 1, size);
  out.min = sorted[0];
  out.median = gsl_stats_median_from_sorted_data(sorted, 1, size);
  out.mean = gsl_stats_mean(sorted, 1, size);
  out.outliers = tukey_outliers(sorted, size);
  if (count > 1) {
    out.std = gsl_stats_sd_m(sorted, 1, size, out.mean);
    gsl_rng_set(rng, (unsigned long)seed);
    for (int i = 0; i < RESAMPLES; i++) medians[i] = timing_resampled_median(rng, sorted, count);
    timing_interval(medians, RESAMPLES, &out.ci_lo, &out.ci_hi);
  }
  out.mad = gsl_stats_mad0(samples, 1, size, sorted);
  *summary = out;
out:
  if (rng) gsl_rng_free(rng);
  free(sorted);
  free(medians);
  return status;
}
