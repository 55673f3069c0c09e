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

interval interval_of_share(int64_t hits, int64_t count) {
  if (count == 0) return none((double)NAN);
  const double n = (double)count, share = (double)hits / n;
  if (count < INTERVAL_UNITS) return none(share);
  const double z = gsl_cdf_ugaussian_Pinv(SIDE), shrink = 1 / (1 + z * z / n),
               middle = shrink * (share + z * z / (2 * n)),
               half = shrink * z * sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  return (interval){share, hits == 0 ? 0 : middle - half, hits == count ? 1 : middle + half};
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
