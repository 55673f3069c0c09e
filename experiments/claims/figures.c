/* figures.c - words and figures of a claim, with the intervals of means, shares and slopes. */
#include "experiments/claims/claim.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_fit.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "experiments/mathematics/intervals.h"

void claim_holds_under(claim_report *r, const char *condition, ...) {
  va_list arguments;
  va_start(arguments, condition);
  vsnprintf(r->condition, sizeof r->condition, condition, arguments);
  va_end(arguments);
  r->word = CLAIM_HOLDS_UNDER;
}

void claim_verdict(const claim_report *r, char *text, size_t size) {
  static const char *const words[] = {
      [CLAIM_MISSED] = "not reproduced",      [CLAIM_REPRODUCED] = "reproduced",
      [CLAIM_HOLDS_UNDER] = "holds under",    [CLAIM_DERIVED] = "derived",
      [CLAIM_REFUTED] = "refuted as printed",
  };
  snprintf(text, size, r->word == CLAIM_HOLDS_UNDER ? "%s %s" : "%s", words[r->word], r->condition);
}

claim_figure *claim_add(claim_report *r, double said, const char *what, ...) {
  claim_figure *f = &r->figures[r->count < CLAIM_FIGURES ? r->count++ : CLAIM_FIGURES - 1];
  va_list arguments;
  *f = (claim_figure){.level = r->level, .said = said};
  va_start(arguments, what);
  vsnprintf(f->what, sizeof f->what, what, arguments);
  va_end(arguments);
  return f;
}

claim_figure *figure_exact(claim_figure *f, double value) {
  f->value = f->low = f->high = value;
  f->level = (double)NAN;
  snprintf(f->interval, sizeof f->interval, "exact");
  return f;
}

claim_figure *figure_mean(claim_figure *f, const double *values, int count, const char *unit) {
  const double mean = gsl_stats_mean(values, 1, (size_t)count);
  const double half = gsl_cdf_tdist_Qinv((1 - f->level) / 2, count - 1) *
                      gsl_stats_sd_m(values, 1, (size_t)count, mean) / sqrt((double)count);
  f->value = mean;
  f->low = mean - half;
  f->high = mean + half;
  snprintf(f->interval, sizeof f->interval, "t, %d %s", count, unit);
  return f;
}

claim_figure *figure_deviation(claim_figure *f, const double *values, int count, const char *unit) {
  const double tail = (1 - f->level) / 2, freedom = count - 1;
  f->value = gsl_stats_sd(values, 1, (size_t)count);
  f->low = f->value * sqrt(freedom / gsl_cdf_chisq_Qinv(tail, freedom));
  f->high = f->value * sqrt(freedom / gsl_cdf_chisq_Pinv(tail, freedom));
  snprintf(f->interval, sizeof f->interval, "chi^2, %d %s", count, unit);
  return f;
}

claim_figure *figure_share(claim_figure *f, int hits, int count, const char *unit) {
  const interval share = interval_of_hits(hits, count, f->level);
  f->value = share.at;
  f->low = share.lo;
  f->high = share.hi;
  snprintf(f->interval, sizeof f->interval, "Clopper-Pearson, %d %s", count, unit);
  return f;
}

double claim_slope(const double *x, const double *y, int points) {
  double a[CLAIM_FIGURES], b[CLAIM_FIGURES], c0, c1, v00, v01, v11, rest;
  for (int i = 0; i < points; i++) {
    a[i] = log(x[i]);
    b[i] = log(y[i]);
  }
  gsl_fit_linear(a, 1, b, 1, (size_t)points, &c0, &c1, &v00, &v01, &v11, &rest);
  return c1;
}

claim_figure *figure_slope(claim_figure *f, const double *x, int points, const double *y, int count,
                           const char *unit) {
  double slopes[CLAIM_FIGURES];
  for (int i = 0; i < count; i++) slopes[i] = claim_slope(x, y + (ptrdiff_t)i * points, points);
  return figure_mean(f, slopes, count, unit);
}

void figure_interval(const claim_figure *f, char *text, size_t size) {
  if (isnan(f->level))
    snprintf(text, size, "%s", f->interval);
  else
    snprintf(text, size, "%.4g ... %.4g (%.6g %%, %s)", f->low, f->high, 100 * f->level, f->interval);
}
