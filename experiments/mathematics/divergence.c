/* divergence.c - distances of next-token distributions (divergence.h).
 *
 * KL is the difference of two numbers as large as the logits, and may be 1e-12: with x = D - mu, whose mean
 * under p is 0, it is log1p(E_p (e^x - 1 - x)), a sum of terms that are not negative. */
#include "experiments/mathematics/divergence.h"

#include <float.h>
#include <math.h>

enum { LARGE = 32 }; /* where e^x - 1 - x is e^x to fp64 and may overflow beyond */

void divergence_exact(int64_t vocab, const float *z, int64_t y, double *p, exact_token *out) {
  double first = -(double)INFINITY, second = -(double)INFINITY, sum = 0, size = 0;
  int64_t top = 0;
  bool ordered = true;
  for (int64_t t = 0; t < vocab; t++) {
    const double at = (double)z[t];
    ordered = ordered && isfinite(at);
    size = fmax(size, fabs(at));
    if (at > first) {
      second = first;
      first = at;
      top = t;
    } else if (at > second) {
      second = at;
    }
  }
  for (int64_t t = 0; t < vocab; t++) sum += p[t] = exp((double)z[t] - first);
  for (int64_t t = 0; t < vocab; t++) p[t] /= sum;
  *out = (exact_token){.nll = ordered ? first + log(sum) - (double)z[y] : (double)NAN,
                       .margin = first - second,
                       .top = top,
                       .p = ordered ? p[y] : (double)NAN,
                       .size = size};
}

static double log_sum(int64_t vocab, const float *z, double most) {
  double sum = 0;
  for (int64_t t = 0; t < vocab; t++) sum += exp((double)z[t] - most);
  return most + log(sum);
}

void divergence_of(int64_t vocab, const float *z, const double *p, const exact_token *exact,
                   const float *changed, int64_t y, divergence *out) {
  double mean = 0, most = -(double)INFINITY, least = (double)INFINITY, first = most;
  int64_t top = 0;
  bool ordered = isfinite(exact->nll);
  for (int64_t t = 0; t < vocab; t++) {
    const double at = (double)changed[t], d = at - (double)z[t];
    ordered = ordered && isfinite(at);
    mean += p[t] * d;
    most = fmax(most, d);
    least = fmin(least, d);
    if (at > first) {
      first = at;
      top = t;
    }
  }
  if (!ordered) {
    const double none = (double)NAN;
    *out = (divergence){none, none, none, none, none, none, none, -1};
    return;
  }
  double excess = 0, variance = 0;
  for (int64_t t = 0; t < vocab; t++) {
    const double x = (double)changed[t] - (double)z[t] - mean;
    variance += p[t] * x * x;
    if (most - mean <= LARGE) excess += p[t] * (expm1(x) - x);
  }
  const double kl = most - mean <= LARGE ? log1p(fmax(excess, 0))
                                         : log_sum(vocab, changed, first) - exact->nll - (double)z[y] - mean;
  const double dnll = kl + mean - ((double)changed[y] - (double)z[y]);
  *out = (divergence){.dnll = dnll,
                      .kl = kl,
                      .dp = exact->p * expm1(-dnll),
                      .variance = variance,
                      .range = most - least,
                      .above = most - mean,
                      .size = fmax(most, -least),
                      .top = top};
}

static double relative(int64_t vocab, const exact_token *e) {
  return ((double)vocab + 4 * e->size + 16) * DBL_EPSILON / 2;
}

double divergence_kl_rounding(int64_t vocab, const exact_token *e, const divergence *d) {
  const double a = relative(vocab, e);
  if (d->above > LARGE) return a * (e->size + d->size + 1);
  return 2 * a * (1 + d->size) * d->kl + a * d->size * a * d->size + 2 * DBL_EPSILON * d->range;
}

double divergence_dnll_rounding(int64_t vocab, const exact_token *e, const divergence *d) {
  return divergence_kl_rounding(vocab, e, d) + (relative(vocab, e) + 2 * DBL_EPSILON) * d->size;
}

double divergence_limit(double r) {
  if (r < 0.0625) return r * r / 8 - r * r * r * r / 576 + r * r * r * r * r * r / 25920;
  /* e^-r in place of e^r, which overflows. */
  return r + log1p(-exp(-r)) - log(r) - 1 + r * exp(-r) / -expm1(-r);
}

double divergence_bennett(double variance, double b) {
  if (b < 0.0625) return variance * (0.5 + b / 6 + b * b / 24 + b * b * b / 120);
  return variance * (expm1(b) - b) / (b * b);
}
