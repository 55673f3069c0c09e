/* orthogonal.c - claims about orthogonal random vectors: the sign that a QR decomposition needs, and a
 * theorem that lost a term in print. */
#include "experiments/claims/claim.h"

#include <gsl/gsl_linalg.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn_variant.h"

enum { WIDTH = 64, BATCHES = 40, BLOCKS = 75, DIRECTIONS = 8, PURPOSE = 0xc1a1 };

/* Unit vectors: ones, e_1, e_32, e_64, and four drawn once. */
static void directions(double z[DIRECTIONS][WIDTH]) {
  static const int axes[] = {0, WIDTH / 2 - 1, WIDTH - 1};
  attn_rng rng;
  attn_rng_init(&rng, 0, PURPOSE + 1, 0);
  for (int t = 0; t < DIRECTIONS; t++) {
    double square = 0;
    for (int l = 0; l < WIDTH; l++) {
      z[t][l] = t == 0 ? 1 : t < 4 ? (l == axes[t - 1]) : attn_rng_normal(&rng);
      square += z[t][l] * z[t][l];
    }
    for (int l = 0; l < WIDTH; l++) z[t][l] /= sqrt(square);
  }
}

/* sums[t] += exp(w.z - |z|^2 / 2), z of length `norm` along direction t, for the rows w of a block: columns
 * of Q from Householder's QR, whose signs are left as they come out, times chi lengths. The mean should be
 * 1. */
static attn_status block_sums(attn_rng *rng, double norm, const double z[DIRECTIONS][WIDTH],
                              double sums[DIRECTIONS]) {
  gsl_matrix *a = gsl_matrix_alloc(WIDTH, WIDTH), *q = gsl_matrix_alloc(WIDTH, WIDTH),
             *x = gsl_matrix_alloc(WIDTH, WIDTH);
  gsl_vector *tau = gsl_vector_alloc(WIDTH);
  attn_status status = ATTN_ENOMEM;
  if (!a || !q || !x || !tau) goto out;
  for (size_t i = 0; i < WIDTH * WIDTH; i++) a->data[i] = attn_rng_normal(rng);
  gsl_linalg_QR_decomp(a, tau);
  gsl_linalg_QR_unpack(a, tau, q, x);
  for (size_t j = 0; j < WIDTH; j++) {
    double square = 0;
    for (size_t i = 0; i < WIDTH; i++) {
      const double draw = attn_rng_normal(rng);
      square += draw * draw;
    }
    for (int t = 0; t < DIRECTIONS; t++) {
      double along = 0;
      for (size_t i = 0; i < WIDTH; i++) along += gsl_matrix_get(q, i, j) * z[t][i];
      sums[t] += exp(sqrt(square) * along * norm - norm * norm / 2);
    }
  }
  status = ATTN_OK;
out:
  gsl_matrix_free(a);
  gsl_matrix_free(q);
  gsl_matrix_free(x);
  gsl_vector_free(tau);
  return status ? attn_fail(status, "no memory for a QR decomposition") : ATTN_OK;
}

/* A Householder reflection gives R_jj the sign opposite to that of the entry that it starts from, so that the
 * first entry of the first column of Q, say, is never positive. */
static attn_status sign(const claim_options *options, claim_report *r) {
  static const char *const names[] = {"the ones", "e_1", "e_32", "e_64"};
  const double norm = 2;
  double z[DIRECTIONS][WIDTH], bias[DIRECTIONS][BATCHES];
  directions(z);
  r->level = 0.99;
  for (int b = 0; b < BATCHES; b++) {
    double sums[DIRECTIONS] = {0};
    attn_rng rng;
    attn_rng_init(&rng, claim_seed(options, 0), PURPOSE, (uint64_t)b);
    for (int i = 0; i < BLOCKS; i++) {
      attn_status status = block_sums(&rng, norm, z, sums);
      if (status) return status;
    }
    for (int t = 0; t < DIRECTIONS; t++) bias[t][b] = 100 * (sums[t] / (WIDTH * BLOCKS) - 1);
  }
  bool biased = false;
  for (int t = 0; t < DIRECTIONS; t++) {
    char random[32];
    snprintf(random, sizeof random, "random direction %d", t - 3);
    const claim_figure *f = figure_mean(
        claim_add(r, CLAIM_UNSAID, "bias in %% at |x + y| = 2, d = 64, along %s", t < 4 ? names[t] : random),
        bias[t], BATCHES, "batches of 75 blocks");
    if (!t) biased = f->high < 0;
  }
  if (biased) r->word = CLAIM_DERIVED;
  return ATTN_OK;
}
const claim claim_orthogonal_sign = {
    "orthogonal-sign",
    "without the signs of R, vectors from a QR decomposition bias positive features along some directions",
    "ours; that the step is needed: Mezzadri 2007 (arXiv:math-ph/0609050); the authors' code of Performer "
    "omits it",
    sign};

/* ---- Theorem 2, in two printed forms ---- */

enum { D = 8, GROUPS = 1 << 15, PLACES = 4 };

/* MSE(independent) - MSE(orthogonal) of estimates of D vectors, an interval from pairs of estimates; y =
 * cosine x, |x|^2 = 1/4. */
static attn_status gap(const claim_options *options, int place, double factor, double *gaps) {
  static const char *const orthogonal[] = {"no", "yes"};
  const double square = 0.25, kernel = exp(square * factor);
  double x[D] = {sqrt(square)}, y[D] = {factor * sqrt(square)};
  double *products = malloc((size_t)GROUPS * D * sizeof *products);
  attn_status status = products ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for estimates");
  for (int kind = 0; kind < 2 && !status; kind++) {
    char spec[80];
    snprintf(spec, sizeof spec, "performer:features=%d,orthogonal=%s,seed=%llu", GROUPS * D, orthogonal[kind],
             (unsigned long long)claim_seed(options, place));
    status = claim_products(spec, D, x, y, (int64_t)GROUPS * D, products);
    for (int g = 0; g < GROUPS && !status; g++) {
      double sum = 0;
      for (int i = 0; i < D; i++) sum += products[g * D + i] / D;
      const double error = (sum - kernel) * (sum - kernel);
      gaps[g] = kind ? gaps[g] - error : error;
    }
  }
  free(products);
  return status;
}

/* The printed gap: as at ICLR, SM^2; else as on arXiv, (SM - exp(-(|x|^2 + |y|^2) / 2))^2. */
static attn_status theorem(const claim_options *options, claim_report *r, bool iclr, bool *met) {
  static const double factors[PLACES] = {1, 0.5, -0.5, -1};
  double *gaps = malloc(GROUPS * sizeof *gaps);
  attn_status status = gaps ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for estimates");
  *met = true;
  r->level = 1 - 1e-4 / PLACES;
  for (int t = 0; t < PLACES && !status; t++) {
    const double inner = 0.25 * factors[t], norms = 0.25 * (1 + factors[t] * factors[t]),
                 lost = iclr ? 0 : exp(-norms / 2),
                 said = (1 - 1.0 / D) * 2 / (D + 2) * (exp(inner) - lost) * (exp(inner) - lost);
    status = gap(options, t, factors[t], gaps);
    if (status) break;
    const claim_figure *f = figure_mean(
        claim_add(r, said, "MSE(independent) - MSE(orthogonal), d = m = 8, |x| = 1/2, y = %g x", factors[t]),
        gaps, GROUPS, "pairs of estimates");
    *met = *met && f->high >= said - 1e-12; /* rounding, where all estimates agree */
  }
  free(gaps);
  return status;
}

/* At y = -x every draw gives exp(w.x - |x|^2/2) exp(-w.x - |x|^2/2) = exp(-|x|^2): both errors are 0. */
static attn_status theorem_iclr(const claim_options *options, claim_report *r) {
  bool met;
  attn_status status = theorem(options, r, true, &met);
  r->telling = PLACES - 1;
  r->word = met ? CLAIM_REPRODUCED : CLAIM_REFUTED;
  return status;
}
const claim claim_orthogonal_iclr = {
    "orthogonal-theorem",
    "orthogonal features take at least (1 - 1/m) (2/(d+2)) SM^2 off the mean squared error",
    "Choromanski et al. 2021, Theorem 2 as printed at ICLR", theorem_iclr};

static attn_status theorem_arxiv(const claim_options *options, claim_report *r) {
  bool met;
  attn_status status = theorem(options, r, false, &met);
  if (met) r->word = CLAIM_REPRODUCED;
  return status;
}
const claim claim_orthogonal_arxiv = {"orthogonal-preprint",
                                      "orthogonal features take at least (1 - 1/m) (2/(d+2)) (SM - "
                                      "exp(-(|x|^2 + |y|^2)/2))^2 off the mean squared error",
                                      "Choromanski et al., arXiv:2009.14794, Theorem 2", theorem_arxiv};
