/* statistics.c - tests of means, of distributions and of coins. */
#include "experiments/mathematics/statistics.h"

#include "experiments/mathematics/vector.h"

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

double two_sided(double below, double above) {
  return isnan(below) || isnan(above) ? 0 : fmin(1, 2 * fmin(below, above));
}

void surprise_add(surprise *s, double p) {
  if (s->count++ == 0 || p < s->least || isnan(p)) s->least = p;
}

double surprise_p(const surprise *s) {
  return isnan(s->least) ? 0 : s->count ? fmin(1, (double)s->count * s->least) : 1;
}

double bonferroni(const double *p, size_t count) {
  surprise found = {0};
  for (size_t i = 0; i < count; i++) surprise_add(&found, p[i]);
  return surprise_p(&found);
}

/* ln of the product of one sign and one a. */
static double mean_evidence(const double *values, int64_t count, double mean, double a, double slack) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) {
    double x = a * (values[i] - mean) - fabs(a) * slack;
    sum += log1p(x + x * x / 2);
  }
  return sum;
}

double mean_p_value(const double *values, int64_t count, double mean, double sigma, double slack) {
  static const double levels[] = {8, 16, 32}; /* ln 1/p for which an a is best */
  enum { LEVELS = sizeof levels / sizeof *levels };
  double spread = sigma + 2 * slack, n = (double)count, evidence = 0;
  if (!(spread > 0)) { /* no distribution */
    for (int64_t i = 0; i < count; i++)
      if (!(values[i] == mean)) return 0;
    return 1;
  }
  for (int l = 0; l < LEVELS; l++) {
    double a = sqrt(2 * levels[l] / n) / spread, drift = n * log1p(a * a * spread * spread / 2);
    for (int sign = -1; sign <= 1; sign += 2)
      evidence += exp(mean_evidence(values, count, mean, sign * a, slack) - drift) / (2 * LEVELS);
  }
  return isnan(evidence) ? 0 : fmin(1, 1 / evidence);
}

double mean_critical_value(double alpha, double sigma, int64_t count) {
  return sigma * sqrt(2 * log(6 / alpha) / (double)count);
}

double signs_p_value(double sum, double squares) {
  if (isnan(sum) || isnan(squares)) return 0;
  return squares > 0 ? fmin(1, 2 * exp(-sum * sum / (2 * squares))) : 1;
}

static const double resolution = 1e-12; /* of a squared cosine */

double directions_p_value(const double *w, int64_t count, int64_t d, int64_t step, double work,
                          double *largest) {
  double pairs = 0, worst = 0;
  int64_t runs = (count + step - 1) / step;
  double each = (double)(step * step * d) * (double)runs;
  int64_t lag = each * (double)runs < work ? runs : (int64_t)fmax(1, work / each);
  if (d == 1 || count <= step) return 1; /* of one component all directions are alike */
  for (int64_t r = step; r < count; r++) {
    int64_t own = r / step, first = own > lag ? (own - lag) * step : 0;
    for (int64_t s = first; s < own * step; s++, pairs++) {
      const double *x = w + r * d, *y = w + s * d;
      double product = vector_dot_fast(x, y, d),
             square = product * product / (vector_dot_fast(x, x, d) * vector_dot_fast(y, y, d));
      if (!(square <= worst)) worst = square;
    }
  }
  *largest = fmax(*largest, sqrt(worst));
  /* Vectors are known to fp32: in few dimensions two that are drawn apart may agree as far. */
  const double known = fmax(0, fmin(1, worst) - resolution);
  return isnan(worst) ? 0 : fmin(1, pairs * gsl_cdf_beta_Q(known, 0.5, (double)(d - 1) / 2));
}

double dkw_p_value(double *levels, int64_t count) {
  double gap = 0, n = (double)count;
  gsl_sort(levels, 1, (size_t)count);
  for (int64_t i = 0; i < count; i++) {
    if (isnan(levels[i])) return 0;
    gap = fmax(gap, fmax(levels[i] - (double)i / n, (double)(i + 1) / n - levels[i]));
  }
  return fmin(1, 2 * exp(-2 * n * gap * gap));
}

double samples_p_value(double *a, double *b, int64_t count) {
  double n = (double)count, most = 0;
  for (int64_t i = 0; i < count; i++)
    if (isnan(a[i]) || isnan(b[i])) return 0;
  gsl_sort(a, 1, (size_t)count);
  gsl_sort(b, 1, (size_t)count);
  for (int64_t i = 0, j = 0; i < count || j < count;) {
    double x = j >= count || (i < count && a[i] <= b[j]) ? a[i] : b[j];
    while (i < count && a[i] <= x) i++;
    while (j < count && b[j] <= x) j++;
    most = fmax(most, fabs((double)(i - j)));
  }
  return fmin(1, 2 * exp(2 * lgamma(n + 1) - lgamma(n - most + 1) - lgamma(n + most + 1)));
}

double hits_p_value(int64_t hits, int64_t count, double low, double high) {
  unsigned k = (unsigned)hits, n = (unsigned)count;
  double below = gsl_cdf_binomial_P(k, low, n), above = k > 0 ? gsl_cdf_binomial_Q(k - 1, high, n) : 1;
  return two_sided(below, above);
}
