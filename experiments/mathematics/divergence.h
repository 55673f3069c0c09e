/* divergence.h - how far a distribution over the next token is from the exact model's, from the logits of
 * both.
 *
 * p = softmax(z), p' = softmax(z'), D = z' - z, mu = E_p D, y the token that follows. All in fp64. */
#ifndef EXPERIMENTS_MATHEMATICS_DIVERGENCE_H
#define EXPERIMENTS_MATHEMATICS_DIVERGENCE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct exact_token {
  double nll;    /* -log p_y, nats */
  double margin; /* between the largest logit and the next */
  int64_t top;   /* the token of the largest logit, the lowest one of equals */
  double p;      /* p_y */
  double size;   /* max |z| */
} exact_token;

typedef struct divergence {
  double dnll;     /* log p_y - log p'_y = log E_p e^D - D_y */
  double kl;       /* KL(p || p') = log E_p e^D - mu >= 0 */
  double dp;       /* p'_y - p_y */
  double variance; /* of D under p */
  double range;    /* max D - min D */
  double above;    /* max D - mu */
  double size;     /* max |D| */
  int64_t top;     /* as exact_token.top, of z' */
} divergence;

/* z [vocab] to p [vocab]. NaN in z: a NaN nll. */
void divergence_exact(int64_t vocab, const float *z, int64_t y, double *p, exact_token *out);

/* p and exact are those of z. NaN or Inf in changed: every number is NaN. */
void divergence_of(int64_t vocab, const float *z, const double *p, const exact_token *exact,
                   const float *changed, int64_t y, divergence *out);

/* By how much rounding may move kl and dnll.
 *
 * With u = 2^-53, Z = max |z|, M = max |D| and a = (vocab + 4 Z + 16) u: p_t = e^(z_t - max z) / sum is off
 * by a of itself (the argument by 2 Z u, exp by 2 u, the sum by (vocab + 2 Z) u), hence mu by a M. In kl =
 * log1p E_p (e^x - 1 - x) an error d of mu enters as log(1 + E + d) - d, that is by d E + d^2, p by a E, and
 * each term by 4 u |x| <= 4 u R. Where e^x may overflow, kl is a difference of numbers up to Z + M + 1, each
 * off by a of itself. dnll = kl + mu - D_y. */
double divergence_kl_rounding(int64_t vocab, const exact_token *, const divergence *);
double divergence_dnll_rounding(int64_t vocab, const exact_token *, const divergence *);

/* psi(R) = log((e^R - 1) / R) - 1 + R / (e^R - 1) <= min(R^2/8, R): the largest KL(p || p') there is for max
 * D - min D = R. D lies on a chord below e^x, so its cumulant is at most that of the law on the two ends with
 * the same mean q; log(1 + q (e^R - 1)) - q R is largest at q = 1/R - 1/(e^R - 1). */
double divergence_limit(double range);

/* Variance (e^b - 1 - b) / b^2, b = above: another upper limit of KL (Bennett 1962). */
double divergence_bennett(double variance, double above);

#endif
