/* fit.c - exponents by weighted least squares on logarithms; crossovers by bootstrap over rounds. */
#include "experiments/analysis/fit.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_fit.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

#include "experiments/instruments/timing.h"

enum { RESAMPLES = 1000 };

const double fit_least_sigma = 0.01;

const char *const fit_crossing_names[] = {"unknown", "faster", "slower", "to faster", "to slower", NULL};

attn_status fit_exponent(const double *n, const double *y, const double *sigma, size_t count,
                         fit_power *fit) {
  fit_power out = {{(double)NAN, (double)NAN, (double)NAN}, 0};
  double *x = calloc(3 * count + 1, sizeof *x), *v = x + count, *w = v + count;
  if (!x) return attn_fail(ATTN_ENOMEM, "out of memory for a fit to %zu lengths", count);
  size_t used = 0;
  bool known = true;
  for (size_t i = 0; i < count; i++) {
    if (!(y[i] > 0) || isinf(y[i])) continue;
    known = known && !isnan(sigma[i]);
    const double s = fmax(sigma[i], fit_least_sigma);
    x[used] = log(n[i]);
    v[used] = log(y[i]);
    w[used++] = 1 / (s * s);
  }
  out.points = used;
  if (used >= 2) {
    double c0, c1, cov00, cov01, cov11, chisq;
    gsl_fit_wlinear(x, 1, w, 1, v, 1, used, &c0, &c1, &cov00, &cov01, &cov11, &chisq);
    const double freedom = (double)used - 2;
    const double scatter = freedom > 0 ? fmax(1, chisq / freedom) : 1;
    double reach = (freedom > 0 ? gsl_cdf_tdist_Pinv(0.975, freedom) : 1.96) * sqrt(cov11 * scatter);
    if (!known && !(freedom > 0)) reach = (double)NAN;
    out.exponent = (fit_interval){c1, c1 - reach, c1 + reach};
  }
  free(x);
  *fit = out;
  return ATTN_OK;
}

/* Where a sequence of log ratios last changes its sign, to the positive (slower) or the negative: -infinity
 * if it never does, +infinity if it ends with the other sign. */
static double change(const fit_ratios *r, const double *log_ratio, size_t count, bool slower) {
  if ((log_ratio[count - 1] > 0) != slower) return (double)INFINITY;
  for (size_t i = count - 1; i > 0; i--) {
    if ((log_ratio[i - 1] > 0) == slower) continue;
    const double before = log_ratio[i - 1], part = before / (before - log_ratio[i]);
    return exp(log(r[i - 1].n) + part * log(r[i].n / r[i - 1].n));
  }
  return -(double)INFINITY;
}

static fit_interval interval_of(double mid, double *values) {
  fit_interval out = {.mid = mid};
  timing_interval(values, RESAMPLES, &out.lo, &out.hi);
  return out;
}

static fit_interval fit_speedup(const fit_ratios *r, const double *medians, double *scratch) {
  const double mid = gsl_stats_median_from_sorted_data(r->log, 1, r->count);
  if (r->count < 2) return (fit_interval){exp(-mid), (double)NAN, (double)NAN};
  for (size_t b = 0; b < RESAMPLES; b++) scratch[b] = exp(-medians[b]);
  return interval_of(exp(-mid), scratch);
}

attn_status fit_cross(fit_ratios *ratios, size_t count, fit_crossing *crossing, fit_interval *speedups) {
  *crossing = (fit_crossing){CROSSING_UNKNOWN, {(double)NAN, (double)NAN, (double)NAN}};
  if (count == 0) return ATTN_OK;
  attn_status status = ATTN_OK;
  double *medians = calloc((count + 1) * RESAMPLES + 2 * count, sizeof *medians);
  gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
  if (!medians || !rng) {
    status = attn_fail(ATTN_ENOMEM, "out of memory for a crossover");
    goto out;
  }
  double *values = medians + count * RESAMPLES, *middle = values + RESAMPLES, *one = middle + count;
  bool single = false;
  for (size_t i = 0; i < count; i++) {
    gsl_sort(ratios[i].log, 1, ratios[i].count);
    middle[i] = gsl_stats_median_from_sorted_data(ratios[i].log, 1, ratios[i].count);
    single = single || ratios[i].count < 2;
    for (size_t b = 0; b < RESAMPLES; b++)
      medians[i * RESAMPLES + b] = timing_resampled_median(rng, ratios[i].log, (int64_t)ratios[i].count);
    speedups[i] = fit_speedup(&ratios[i], medians + i * RESAMPLES, values);
  }
  if (count < 2) goto out;
  const bool slower = middle[count - 1] > 0;
  const double n = change(ratios, middle, count, slower);
  if (isinf(n)) {
    crossing->kind = slower ? CROSSING_SLOWER : CROSSING_FASTER;
    goto out;
  }
  crossing->kind = slower ? CROSSING_TO_SLOWER : CROSSING_TO_FASTER;
  crossing->n.mid = n;
  if (single) goto out;
  for (size_t b = 0; b < RESAMPLES; b++) {
    for (size_t i = 0; i < count; i++) one[i] = medians[i * RESAMPLES + b];
    values[b] = change(ratios, one, count, slower);
  }
  crossing->n = interval_of(n, values);
out:
  if (rng) gsl_rng_free(rng);
  free(medians);
  return status;
}
