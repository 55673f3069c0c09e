/* softmax_kernel.c - claims about the estimated softmax kernel SM(x, y) = exp(x.y): Choromanski et al.,
 * Rethinking Attention with Performers (ICLR 2021, arXiv:2009.14794), Lemma 2, Theorem 1 and Theorem 4. */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn_variant.h"

/* Lemma 2. Estimates of m vectors each, many of them from one plan. */
enum { D = 16, M = 16, GROUPS = 1 << 15, KINDS = 3, PLACES = 3 };

/* (8) as printed. sum = |x + y|^2, difference = |x - y|^2. */
static double printed(int kind, double sum, double difference, double inner) {
  const double positive = exp(sum) * exp(2 * inner) * (1 - exp(-sum)) / M;
  if (kind == 0) return exp(sum) * exp(-2 * inner) * pow(1 - exp(-difference), 2) / (2 * M);
  return kind == 1 ? positive : (1 - exp(-sum)) * positive / 2;
}

static attn_status mse_at(int kind, uint64_t seed, const double *x, const double *y, double inner,
                          double *errors) {
  static const char *const kernels[KINDS] = {"trig", "positive", "hyperbolic"};
  char spec[96];
  double *products = malloc((size_t)GROUPS * M * sizeof *products);
  if (!products) return attn_fail(ATTN_ENOMEM, "no memory for estimates");
  snprintf(spec, sizeof spec, "performer:features=%d,kernel=%s,orthogonal=no,seed=%llu", GROUPS * M,
           kernels[kind], (unsigned long long)seed);
  attn_status status = claim_products(spec, D, x, y, (int64_t)GROUPS * M, products);
  for (int g = 0; g < GROUPS && !status; g++) {
    double sum = 0;
    for (int i = 0; i < M; i++) sum += products[g * M + i];
    /* Hyperbolic features are halved here: the factor cancels in attention. */
    const double off = sum / M / (kind == 2 ? 2 : 1) - exp(inner);
    errors[g] = off * off;
  }
  free(products);
  return status;
}

static attn_status mse(const claim_options *options, claim_report *r) {
  static const char *const names[KINDS] = {"trigonometric", "positive", "hyperbolic"},
                           *const places[PLACES] = {"x = y", "x orthogonal to y", "x = -y"};
  static const double cosine[PLACES] = {1, 0, -1};
  const double square = 0.25;
  double *errors = malloc(GROUPS * sizeof *errors);
  attn_status status = errors ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for estimates");
  bool met = true;
  /* Nine equalities: a chance of 1e-4 that one of them is missed. */
  r->level = 1 - 1e-4 / (KINDS * PLACES);
  for (int t = 0; t < PLACES && !status; t++) {
    double x[D] = {sqrt(square)},
           y[D] = {cosine[t] * sqrt(square), sqrt(square * (1 - cosine[t] * cosine[t]))};
    const double inner = square * cosine[t];
    for (int kind = 0; kind < KINDS && !status; kind++) {
      status = mse_at(kind, claim_seed(options, t), x, y, inner, errors);
      if (status) break;
      const claim_figure *f =
          figure_mean(claim_add(r, printed(kind, 2 * square + 2 * inner, 2 * square - 2 * inner, inner),
                                "MSE, %s, m = 16, |x| = |y| = 1/2, %s", names[kind], places[t]),
                      errors, GROUPS, "estimates");
      /* Where all estimates agree within rounding, there is no spread. */
      met = met && fabs(f->value - f->said) <= (f->high - f->low) / 2 + 1e-12;
    }
  }
  free(errors);
  r->telling = PLACES + 1;
  if (met) r->word = CLAIM_REPRODUCED;
  return status;
}
const claim claim_performer_mse = {
    "performer-lemma-2",
    "the mean squared errors of trigonometric, positive and hyperbolic features are those of (8)",
    "Choromanski et al. 2021, Lemma 2", mse};

/* ---- Theorem 1 ---- */

/* SMREG / SM of |x + y|^2 = z: 0F1(;d/2; d z / 4) exp(-z / 2). */
static double ratio_of(int64_t d, double z) {
  double sum = 0;
  /* Terms (z/2)^k / k! d^k / (d (d+2) ... (d+2k-2)), in logarithms. */
  for (int k = 0; k < 4096; k++) {
    const double term = k * log(z / 2) - lgamma(k + 1.0) + k * log((double)d / 2) + lgamma((double)d / 2) -
                        lgamma((double)d / 2 + k) - z / 2;
    sum += exp(term);
    if (k > z && term < -40) break;
  }
  return sum;
}

static attn_status measured(const claim_options *options, claim_report *r, int64_t d, double *said) {
  enum { VECTORS = 1 << 16, BATCHES = 64 };
  double x[64] = {sqrt(0.5)}, batch[BATCHES] = {0};
  char spec[96];
  double *products = malloc(VECTORS * sizeof *products);
  if (!products) return attn_fail(ATTN_ENOMEM, "no memory for estimates");
  snprintf(spec, sizeof spec, "performer:features=%d,norm=sqrt_d,seed=%llu", VECTORS,
           (unsigned long long)claim_seed(options, 0));
  attn_status status = claim_products(spec, d, x, x, VECTORS, products);
  for (int i = 0; i < VECTORS && !status; i++)
    batch[i / (VECTORS / BATCHES)] += products[i] / exp(0.5) / (VECTORS / BATCHES);
  free(products);
  if (status) return status;
  *said = ratio_of(d, 2);
  figure_mean(claim_add(r, CLAIM_UNSAID, "SMREG / SM from features, d = %lld, |x|^2 = |y|^2 = x.y = 1/2",
                        (long long)d),
              batch, BATCHES, "batches");
  return ATTN_OK;
}

static attn_status regularised(const claim_options *options, claim_report *r) {
  static const int64_t widths[] = {16, 64, 256, 1024, 4096};
  enum { WIDTHS = sizeof widths / sizeof *widths };
  double width[WIDTHS], lost[WIDTHS];
  bool above = true, below = true, loose = false;
  r->level = 0.9999;
  for (int64_t d = 4; d <= 16; d *= 4) {
    double exact;
    attn_status status = measured(options, r, d, &exact);
    if (status) return status;
    const claim_figure *f = &r->figures[r->count - 1];
    above = above && f->low <= exact && exact <= f->high;
  }
  /* SM(x,x) = SM(y,y) = e for all d; and |x|^2 = sqrt(d), as of standard normal q and k: the entries are 1,
   * and the theorem asks for no more. */
  for (int t = 0; t < 2; t++)
    for (int i = 0; i < WIDTHS; i++) {
      const double d = (double)widths[i], z = t ? 2 * sqrt(d) : 4, ratio = ratio_of(widths[i], z),
                   promised = 1 - 2 / cbrt(d);
      below = below && ratio <= 1;
      if (!t) above = above && ratio >= promised;
      if (t) loose = loose || ratio < promised;
      width[i] = d;
      if (!t) lost[i] = 1 - ratio;
      figure_exact(claim_add(r, promised,
                             t ? "SMREG / SM, d = %lld, |x|^2 = |y|^2 = sqrt(d), x.y = 0"
                               : "SMREG / SM, d = %lld, |x|^2 = |y|^2 = x.y = 1",
                             (long long)widths[i]),
                   ratio);
    }
  r->telling = r->count - 1;
  figure_exact(claim_add(r, CLAIM_UNSAID, "exponent of d of 1 - SMREG / SM, |x|^2 = |y|^2 = x.y = 1"),
               claim_slope(width, lost, WIDTHS));
  if (above && below && loose)
    claim_holds_under(r, "a bound on SM(x,x) and SM(y,y); one on SM(x,y) is not enough");
  else if (above && below)
    r->word = CLAIM_REPRODUCED;
  return ATTN_OK;
}
const claim claim_performer_regularised = {
    "performer-theorem-1",
    "where entries are bounded, vectors of length sqrt(d) estimate at most SM, and at least (1 - 2 d^(-1/3) "
    "+ o) SM",
    "Choromanski et al. 2021, Theorem 1 (its proof bounds SM(x,x) and SM(y,y))", regularised};

/* ---- Theorem 4 ---- */

/* Rows on the sphere of radius `length`. */
static void sphere(attn_rng *rng, int64_t rows, int64_t d, double length, double *x) {
  for (int64_t i = 0; i < rows; i++, x += d) {
    double square = 0;
    for (int64_t l = 0; l < d; l++) {
      x[l] = attn_rng_normal(rng);
      square += x[l] * x[l];
    }
    for (int64_t l = 0; l < d; l++) x[l] *= length / sqrt(square);
  }
}

enum { WIDTH = 8, LENGTHS = 3, LONGEST = 256, DRAWS = 20 };
static const int64_t lengths[LENGTHS] = {16, 64, LONGEST};

/* The largest error of an entry among the first lengths[i] queries and keys. */
static attn_status largest(uint64_t seed, int64_t vectors, double length, double most[LENGTHS]) {
  double *x = malloc(2 * LONGEST * WIDTH * sizeof *x), *f = NULL, *g = NULL;
  const double *y = x + LONGEST * WIDTH;
  char spec[80];
  attn_plan *plan = NULL;
  int64_t columns = 0;
  attn_rng rng;
  attn_status status = x ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for queries and keys");
  if (status) return status;
  attn_rng_init(&rng, seed, 0x7e04, 0);
  sphere(&rng, 2 * LONGEST, WIDTH, length, x);
  snprintf(spec, sizeof spec, "performer:features=%lld,kernel=trig,seed=%llu", (long long)vectors,
           (unsigned long long)seed);
  status = claim_feature_plan(spec, WIDTH, &plan);
  if (!status) status = claim_features(plan, ATTN_QUERY, x, LONGEST, &columns, &f);
  if (!status) status = claim_features(plan, ATTN_KEY, y, LONGEST, &columns, &g);
  for (int i = 0; i < LENGTHS; i++) most[i] = 0;
  for (int64_t a = 0; a < LONGEST && !status; a++)
    for (int64_t b = 0; b < LONGEST; b++) {
      double estimate = 0, inner = 0;
      for (int64_t c = 0; c < columns; c++) estimate += f[a * columns + c] * g[b * columns + c];
      for (int64_t l = 0; l < WIDTH; l++) inner += x[a * WIDTH + l] * y[b * WIDTH + l];
      const double error = fabs(estimate / (double)vectors - exp(inner));
      for (int i = 0; i < LENGTHS; i++)
        if (a < lengths[i] && b < lengths[i]) most[i] = fmax(most[i], error);
    }
  attn_plan_destroy(plan);
  free(x);
  free(f);
  free(g);
  return status;
}

/* m = d / delta^2 log(4 d^(3/4) R / delta), the constant of Theta taken to be 1; d = 8, R = 1, eps = 1/2. */
static attn_status length(const claim_options *options, claim_report *r) {
  const double d = WIDTH, radius = 1, eps = 0.5, l = radius / pow(d, 0.25), delta = eps / exp(l * l);
  const int64_t vectors = (int64_t)ceil(d / (delta * delta) * log(4 * pow(d, 0.75) * radius / delta));
  double most[DRAWS][LENGTHS], n[LENGTHS], column[DRAWS];
  for (int s = 0; s < DRAWS; s++) {
    attn_status status = largest(claim_seed(options, s), vectors, l, most[s]);
    if (status) return status;
  }
  bool within = true;
  for (int i = 0; i < LENGTHS; i++) {
    int hits = 0;
    n[i] = (double)lengths[i];
    for (int s = 0; s < DRAWS; s++) {
      column[s] = most[s][i];
      hits += column[s] <= eps;
    }
    figure_mean(claim_add(r, eps, "largest error of an entry, L = %lld, m = %lld, d = 8, R = 1",
                          (long long)lengths[i], (long long)vectors),
                column, DRAWS, "draws");
    const claim_figure *f = figure_share(
        claim_add(r, CLAIM_UNSAID, "share of draws within eps = 0.5, L = %lld", (long long)lengths[i]), hits,
        DRAWS, "draws");
    within = within && f->low >= 0.5;
  }
  figure_slope(claim_add(r, CLAIM_UNSAID, "exponent of L of the largest error"), n, LENGTHS, &most[0][0],
               DRAWS, "draws");
  r->telling = 2 * (LENGTHS - 1);
  if (within) claim_holds_under(r, "d = 8, R = 1, eps = 1/2, a constant of 1 in Theta");
  return ATTN_OK;
}
const claim claim_performer_length = {
    "performer-theorem-4",
    "m = Theta(d / delta^2 log(4 d^(3/4) R / delta)), whatever the length L, keeps every entry within eps",
    "Choromanski et al. 2021, Theorem 4 (arXiv: largest entry; ICLR prints |.|_1)", length};
