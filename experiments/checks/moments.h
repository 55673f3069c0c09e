/* moments.h - how the random features of FAVOR+ are drawn, and the exact second moments of a row that they estimate.
 *
 * With x = sqrt(scale) q, y_j = sqrt(scale) k_j and one random vector w, the estimate of A_j = exp(x.y_j) is A^_j(w), of
 * mean A_j and E A^_i A^_j = A_i A_j h(a_i.a_j):
 *   positive    h = exp,  a_j = x + y_j   (E exp(w.b) = exp(|b|^2/2) at b = a_i + a_j)
 *   hyperbolic  h = cosh, a_j = x + y_j
 *   trig        h = cosh, a_j = x - y_j
 * With D = sum A_j, Y = sum_j A^_j, W = sum_j A^_j (v_j - o): E Y = D, E W = 0, and
 *   rho = E Y^2 / D^2   = 1 + sum_ij p_i p_j (h(a_i.a_j) - 1)
 *   v^2 = E |W|^2 / D^2 = sum_ij p_i p_j (h(a_i.a_j) - 1) (v_i - o).(v_j - o), since sum_i p_i (v_i - o) = 0. */
#ifndef EXPERIMENTS_CHECKS_MOMENTS_H
#define EXPERIMENTS_CHECKS_MOMENTS_H

#include "checks/probe.h"

typedef enum { KERNEL_POSITIVE, KERNEL_HYPERBOLIC, KERNEL_TRIG, KERNEL_RELU } feature_kernel;

/* The law of w_1 ... w_m. */
typedef struct feature_law {
  feature_kernel kernel;
  int64_t m, d;
  bool orthogonal; /* in blocks of d, of which the last has the first rows only */
  bool constant;   /* orthogonal, and of length sqrt(d) instead of chi_d draws */
  double pairs;    /* ordered pairs of vectors that share a block */
  /* Independent vectors that are worth as much, at the least: m if all are independent, else m^2 / sum s_b^2 over the
   * sizes of blocks. A mean over a block is at most as spread as one vector, E |mean|^2 <= E |W|^2, and blocks are
   * independent, so that E |W_1 + ... + W_m|^2 <= sum s_b^2 E |W|^2. */
  double independent;
} feature_law;

/* Another number of vectors. */
void feature_law_resize(feature_law *, int64_t m);
/* False if the plan has no features, or not those of FAVOR+. */
bool feature_law_of(const evidence *, feature_law *);

/* Moments of up to 8 rows of the probe, kept in e->cache for all variants of a block that draw such features.
 * EUNSUPPORTED: they cost more than `work` multiply-adds. Not for KERNEL_RELU. */
attn_status row_moments(const evidence *e, const probe *, feature_kernel, double work, const moment_entry **);
static const double row_moments_work = 0x1.4p30; /* what a check may spend: n_kv up to 4096 at d = d_v = 64 */

/* P(Y < D/2) is at most this. For Y >= 0 exp(-m / 8 rho), from e^-y <= 1 - y + y^2/2 (Maurer 2003); for any 4 (rho - 1) / m
 * (Chebyshev); m the independent vectors of the law. */
double moment_collapse(const feature_law *, const row_moment *);

#endif
