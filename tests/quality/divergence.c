/* divergence.c - distances of next-token distributions, against their definitions in long double. */
#include <criterion/criterion.h>
#include <math.h>

#include "attn_variant.h"
#include "experiments/mathematics/divergence.h"
#include "tests/support/basics/rng.h"

enum { VOCAB = 97 };

static void draw(attn_rng *rng, double size, float *z) {
  for (int t = 0; t < VOCAB; t++) z[t] = (float)(size * attn_rng_normal(rng));
}

typedef struct truth {
  long double nll, kl, dnll, dp, variance;
} truth;

static long double lse(const float *z) {
  long double sum = 0;
  for (int t = 0; t < VOCAB; t++) sum += expl((long double)z[t]);
  return logl(sum);
}

static truth define(const float *z, const float *changed, int y) {
  const long double a = lse(z), b = lse(changed);
  truth w = {.nll = a - (long double)z[y], .dnll = (b - (long double)changed[y]) - (a - (long double)z[y])};
  long double mean = 0;
  for (int t = 0; t < VOCAB; t++) {
    const long double p = expl((long double)z[t] - a), d = (long double)changed[t] - (long double)z[t];
    w.kl += p * (b - a - d);
    mean += p * d;
    w.variance += p * d * d;
  }
  w.variance -= mean * mean;
  w.dp = expl((long double)changed[y] - b) - expl((long double)z[y] - a);
  return w;
}

static void expect_near(const char *what, double got, long double want, double scale) {
  cr_expect(fabsl((long double)got - want) <= 1e-14L * (long double)scale, "%s: %.17g, expected %.17Lg", what,
            got, want);
}

Test(divergence, is_what_it_is_defined_to_be) {
  attn_rng rng = rng_of(20260102, 0, 0);
  for (int c = 0; c < 600; c++) {
    float z[VOCAB], changed[VOCAB], by[VOCAB];
    double p[VOCAB];
    const double size = pow(10, c % 7 - 5); /* of the change, 1e-5 ... 10 */
    exact_token e;
    divergence d;
    draw(&rng, 3, z);
    draw(&rng, size, by);
    for (int t = 0; t < VOCAB; t++) changed[t] = z[t] + by[t];
    const int y = c % VOCAB;
    const truth w = define(z, changed, y);
    divergence_exact(VOCAB, z, y, p, &e);
    divergence_of(VOCAB, z, p, &e, changed, y, &d);
    expect_near("nll", e.nll, w.nll, 30);
    expect_near("dnll", d.dnll, w.dnll, 30 * size + 1);
    expect_near("dp", d.dp, w.dp, 30 * size + 1);
    expect_near("variance", d.variance, w.variance, 100 * size * size + 1e-6);
    /* Long double's own rounding is all that is left of it at the small sizes. */
    expect_near("kl", d.kl, w.kl, fmax((double)w.kl, 1e-3));
    cr_expect(d.kl >= 0 && d.kl <= divergence_limit(d.range) * (1 + 1e-12), "%g > %g", d.kl,
              divergence_limit(d.range));
    cr_expect(d.kl <= divergence_bennett(d.variance, d.above) * (1 + 1e-12));
    cr_expect(fabs(d.dnll) <= d.range * (1 + 1e-12));
    cr_expect(!(e.margin > d.range) || d.top == e.top);
  }
}

/* The law on two points attains the limit of a range at q = 1/R - 1/(e^R - 1). */
Test(divergence, limits_are_attained) {
  for (double range = 0.01; range < 60; range *= 1.3) {
    const double q = 1 / range - 1 / expm1(range);
    const float z[2] = {(float)log((1 - q) / q), 0}, changed[2] = {z[0], (float)range};
    double p[2];
    exact_token e;
    divergence d;
    divergence_exact(2, z, 0, p, &e);
    divergence_of(2, z, p, &e, changed, 0, &d);
    cr_expect(d.kl <= divergence_limit(d.range) * (1 + 1e-12));
    cr_expect(d.kl >= divergence_limit(d.range) * (1 - 1e-6), "%g: %.17g of %.17g", range, d.kl,
              divergence_limit(d.range));
  }
}

Test(divergence, extremes) {
  float z[VOCAB] = {0}, changed[VOCAB] = {0};
  double p[VOCAB];
  exact_token e;
  divergence d;
  divergence_exact(VOCAB, z, 5, p, &e);
  cr_expect(e.top == 0 && e.margin == 0, "equal logits: the lowest token");
  divergence_of(VOCAB, z, p, &e, z, 5, &d);
  cr_expect(d.kl == 0 && d.dnll == 0 && d.dp == 0 && d.range == 0 && d.variance == 0 && d.top == 0);
  changed[7] = 3000; /* e^3000 has no number */
  divergence_of(VOCAB, z, p, &e, changed, 5, &d);
  expect_near("kl", d.kl, 3000 - logl(VOCAB) - 3000.0L / VOCAB, 3000);
  cr_expect(d.top == 7 && d.range == 3000 && isfinite(d.dnll));
  changed[7] = (float)NAN;
  divergence_of(VOCAB, z, p, &e, changed, 5, &d);
  cr_expect(isnan(d.kl) && isnan(d.dnll) && isnan(d.range) && d.top == -1);
  z[3] = (float)INFINITY;
  divergence_exact(VOCAB, z, 5, p, &e);
  cr_expect(isnan(e.nll));
}
