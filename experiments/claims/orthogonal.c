/* orthogonal.c - claims about orthogonal random vectors: the sign that a QR decomposition needs, and a
 * theorem that lost a term in print. */
#include "experiments/claims/claim.h"

#include <gsl/gsl_linalg.h>
#include <math.h>
#include <stdlib.h>

#include "attn_variant.h"

enum { WIDTH = 64, BLOCKS = 3000, NORMS = 3, PURPOSE = 0xc1a1 };
static const double norms[NORMS] = {0.5, 1, 2};

/* sums[k] += exp(w.z - |z|^2 / 2), z along 1 with |z| = norms[k], for the rows w of a block: columns of Q
 * from Householder's QR, whose signs are left as they come out, times chi lengths. The mean should be 1. */
static attn_status block_sums(uint64_t index, double sums[NORMS]) {
  gsl_matrix *a = gsl_matrix_alloc(WIDTH, WIDTH), *q = gsl_matrix_alloc(WIDTH, WIDTH),
             *x = gsl_matrix_alloc(WIDTH, WIDTH);
  gsl_vector *tau = gsl_vector_alloc(WIDTH);
  attn_status status = ATTN_ENOMEM;
  if (!a || !q || !x || !tau) goto out;
  attn_rng rng;
  attn_rng_init(&rng, 0, PURPOSE, index);
  for (size_t i = 0; i < WIDTH * WIDTH; i++) a->data[i] = attn_rng_normal(&rng);
  gsl_linalg_QR_decomp(a, tau);
  gsl_linalg_QR_unpack(a, tau, q, x);
  for (size_t j = 0; j < WIDTH; j++) {
    double along = 0, square = 0;
    for (size_t i = 0; i < WIDTH; i++) {
      const double draw = attn_rng_normal(&rng);
      along += gsl_matrix_get(q, i, j);
      square += draw * draw;
    }
    for (int k = 0; k < NORMS; k++)
      sums[k] += exp(sqrt(square / WIDTH) * along * norms[k] - norms[k] * norms[k] / 2);
  }
  status = ATTN_OK;
out:
  gsl_matrix_free(a);
  gsl_matrix_free(q);
  gsl_matrix_free(x);
  gsl_vector_free(tau);
  return status ? attn_fail(status, "no memory for a QR decomposition") : ATTN_OK;
}

static attn_status sign(claim_report *r) {
  static const double said[NORMS] = {-3.6, -6.9, -13};
  enum { BATCHES = 20 };
  double bias[NORMS][BATCHES];
  for (int b = 0; b < BATCHES; b++) {
    double sums[NORMS] = {0};
    for (int i = 0; i < BLOCKS / BATCHES; i++) {
      attn_status status = block_sums((uint64_t)(b * (BLOCKS / BATCHES) + i), sums);
      if (status) return status;
    }
    for (int k = 0; k < NORMS; k++) bias[k][b] = 100 * (sums[k] / (WIDTH * (BLOCKS / BATCHES)) - 1);
  }
  r->telling = NORMS - 1;
  r->reproduced = true;
  for (int k = 0; k < NORMS; k++) {
    const claim_figure *f =
        claim_mean(r, bias[k], BATCHES, said[k], "bias in %% at |z| = %g, d = 64", norms[k]);
    r->reproduced = r->reproduced && f->high < 0 && fabs(f->value - said[k]) <= (f->high - f->low) / 2 + 0.5;
  }
  return ATTN_OK;
}
const claim claim_performer_sign = {
    "orthogonal-sign",
    "without the signs of R, vectors from a QR decomposition are not uniform, and positive features biased",
    "Mezzadri 2007 (arXiv:math-ph/0609050); the authors' code of Performer omits the step", sign};

/* Theorem 2 as printed: MSE(orthogonal) <= MSE(iid) - (1 - 1/m) (2/(d+2)) SM^2. At y = -x every draw gives
 * exp(w.x - |x|^2/2) exp(-w.x - |x|^2/2) = exp(-|x|^2): both errors are 0. The preprint has SM^2 replaced by
 * (SM - kappa)^2 with kappa = exp(-(|x|^2 + |y|^2) / 2), which is 0 there. */
static attn_status theorem(claim_report *r) {
  const double square = 1, m = WIDTH, kernel = exp(-square);
  double largest = 0;
  attn_rng rng;
  attn_rng_init(&rng, 1, PURPOSE, 0);
  for (int i = 0; i < 1000; i++) {
    const double w = attn_rng_normal(&rng);
    const double estimate = exp(w * sqrt(square) - square / 2) * exp(-w * sqrt(square) - square / 2);
    largest = fmax(largest, fabs(estimate - kernel));
  }
  const double gap = (1 - 1 / m) * 2 / (WIDTH + 2) * kernel * kernel;
  claim_value(r, largest, (double)NAN, "largest error of 1000 draws at y = -x, |x| = 1");
  claim_value(r, 0, gap, "MSE(iid) - MSE(orthogonal)");
  r->telling = 1;
  r->reproduced = 0 >= gap;
  return ATTN_OK;
}
const claim claim_performer_orthogonal = {
    "orthogonal-theorem",
    "orthogonal features take at least (1 - 1/m) (2/(d+2)) SM^2 off the mean squared error",
    "Choromanski et al. 2021, Theorem 2 as printed at ICLR (the preprint's form holds)",
    theorem};
