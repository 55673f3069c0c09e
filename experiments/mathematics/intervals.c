/* intervals.c - intervals over independent units (intervals.h). */
#include "experiments/mathematics/intervals.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_sort_double.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "attn_variant.h"

enum { RESAMPLES = 10000 };
static const double SIDE = 0.975;

static interval none(double at) { return (interval){at, (double)NAN, (double)NAN}; }

interval interval_of_mean(const double *values, size_t count) {
  if (count == 0) return none((double)NAN);
  const double mean = gsl_stats_mean(values, 1, count);
  if (count < INTERVAL_UNITS) return none(mean);
  const double error = gsl_stats_sd_m(values, 1, count, mean) / sqrt((double)count),
               half = gsl_cdf_tdist_Pinv(SIDE, (double)(count - 1)) * error;
  return (interval){mean, mean - half, mean + half};
}

/* The x of P(X <= x) = tail, X beta distributed: GSL's inverse fails for thousands of draws. */
static double beta_quantile(double tail, double a, double b) {
  double low = 0, high = 1;
  for (int i = 0; i < 60; i++) {
    const double middle = (low + high) / 2;
    if (gsl_cdf_beta_P(middle, a, b) < tail)
      low = middle;
    else
      high = middle;
  }
  return (low + high) / 2;
}

interval interval_of_hits(int64_t hits, int64_t count, double level) {
  const double tail = (1 - level) / 2, hit = (double)hits, missed = (double)(count - hits);
  return (interval){hit / (double)count, hits ? beta_quantile(tail, hit, missed + 1) : 0,
                    hits < count ? 1 - beta_quantile(tail, missed, hit + 1) : 1};
}

interval interval_of_share(int64_t hits, int64_t count) {
  if (count == 0) return none((double)NAN);
  if (count < INTERVAL_UNITS) return none((double)hits / (double)count);
  return interval_of_hits(hits, count, 2 * SIDE - 1);
}

interval interval_of_difference(const double *a, const double *b, size_t count, uint64_t seed) {
  if (count == 0) return none((double)NAN);
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += a[i] - b[i];
  const double mean = sum / (double)count;
  double *means = count < INTERVAL_UNITS || isnan(mean) ? NULL : malloc(RESAMPLES * sizeof *means);
  if (!means) return none(mean);
  attn_rng rng;
  attn_rng_init(&rng, seed, 0, 0);
  for (int r = 0; r < RESAMPLES; r++) {
    double total = 0;
    for (size_t i = 0; i < count; i++) {
      const int64_t drawn = attn_rng_below(&rng, (int64_t)count);
      total += a[drawn] - b[drawn];
    }
    means[r] = total / (double)count;
  }
  gsl_sort(means, 1, RESAMPLES);
  const interval found = {mean, gsl_stats_quantile_from_sorted_data(means, 1, RESAMPLES, 1 - SIDE),
                          gsl_stats_quantile_from_sorted_data(means, 1, RESAMPLES, SIDE)};
  free(means);
  return found;
}
