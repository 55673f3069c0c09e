/* pair_moments.h - the exact second moments of a row that the random features of FAVOR+ estimate.
 *
 * With x = sqrt(scale) q, y_j = sqrt(scale) k_j and one random vector w, the estimate of A_j = exp(x.y_j) is
 * A^_j(w), of mean A_j and E A^_i A^_j = A_i A_j h_ij, h_ij = h(a_i.a_j):
 *   positive    h = exp,  a_j = x + y_j   (E exp(w.b) = exp(|b|^2/2) at b = a_i + a_j)
 *   hyperbolic  h = cosh, a_j = x + y_j
 *   trig        h = cosh, a_j = x - y_j
 *   positive with weights of a (attn_feature_law)
 *               h = exp(l + a_i.a_j + (t - 1) |a_i + a_j|^2 / 2), a_j = x + y_j, t = (1 - 4a) / (1 - 8a), l =
 *               ln of (1 - 4a)^d (1 - 8a)^(-d/2): two products weight w by exp(4a |w|^2), and it is normal of
 *               variance 1 / (1 - 8a)
 * With D = sum A_j, Y = sum_j A^_j, W = sum_j A^_j (v_j - o): E Y = D, E W = 0, and
 *   rho = E Y^2 / D^2   = 1 + sum_ij p_i p_j (h_ij - 1)
 *   v^2 = E |W|^2 / D^2 = sum_ij p_i p_j (h_ij - 1) (v_i - o).(v_j - o), since sum_i p_i (v_i - o) =
 *     0. */
#ifndef EXPERIMENTS_MATHEMATICS_PAIR_MOMENTS_H
#define EXPERIMENTS_MATHEMATICS_PAIR_MOMENTS_H

#include "experiments/mathematics/feature_law.h"

/* Second moments of a row over the draws. */
typedef struct row_moment {
  double rho, spread; /* E Y^2 / D^2, E |W|^2 / D^2 */
  double square;      /* |o|^2, exact */
} row_moment;

/* One row against all keys that it sees. */
typedef struct moment_row {
  int64_t count; /* keys seen: a causal row sees the first ones */
  double *log_p; /* [count] */
  double *along; /* [count] x.y_j */
  double *away;  /* [count, d_v] v_j - o */
  double x_square;
} moment_row;

typedef struct moment_input {
  const feature_law *law; /* of those of feature_law_is_favor, lengths not constant */
  const double *k;        /* [n, d] */
  int64_t n, d, d_v;
  double scale;
  const moment_row *rows;
  int64_t count;
} moment_input;

/* ln h_ij for positive features, and what it is the cosh of for others, from |a_i|^2, |a_j|^2 and a_i.a_j. */
double moment_exponent(const feature_law *, double i_square, double j_square, double inner);
/* h_ij of a query x and keys y_i and y_j, law->d components each, times sqrt(scale). */
double moment_of_pair(const feature_law *, const double *x, const double *y_i, const double *y_j);

/* Fills rho and spread of each row. ENOMEM. */
attn_status moments_compute(const moment_input *, row_moment *);

/* P(Y < D/2) is at most this: with V = (rho - 1) / independent 4 V for any Y (Chebyshev); for Y >= 0, where a
 * block's part of D - Y is at most its share b of D, exp(-V/b^2 h(b/2V)), h(x) = (1+x) ln(1+x) - x (Bennett
 * 1962). */
double moment_collapse(const feature_law *, const row_moment *);

#endif
