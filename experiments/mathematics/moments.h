/* moments.h - how the random features of FAVOR+ are drawn, and the exact second moments of a row that they
 * estimate.
 *
 * With x = sqrt(scale) q, y_j = sqrt(scale) k_j and one random vector w, the estimate of A_j = exp(x.y_j) is
 * A^_j(w), of mean A_j and E A^_i A^_j = A_i A_j h(a_i.a_j):
 *   positive    h = exp,  a_j = x + y_j   (E exp(w.b) = exp(|b|^2/2) at b = a_i + a_j)
 *   hyperbolic  h = cosh, a_j = x + y_j
 *   trig        h = cosh, a_j = x - y_j
 * With D = sum A_j, Y = sum_j A^_j, W = sum_j A^_j (v_j - o): E Y = D, E W = 0, and
 *   rho = E Y^2 / D^2   = 1 + sum_ij p_i p_j (h(a_i.a_j) - 1)
 *   v^2 = E |W|^2 / D^2 = sum_ij p_i p_j (h(a_i.a_j) - 1) (v_i - o).(v_j - o), since sum_i p_i (v_i - o) =
 *     0. */
#ifndef EXPERIMENTS_MATHEMATICS_MOMENTS_H
#define EXPERIMENTS_MATHEMATICS_MOMENTS_H

#include "experiments/evidence/cache.h"
#include "experiments/evidence/probe.h"

/* The law of w_1 ... w_m. */
typedef struct feature_law {
  attn_features_kind kind;
  int64_t m, d;
  bool orthogonal; /* in blocks of d, of which the last has the first rows only */
  bool constant;   /* orthogonal, and of length sqrt(d) instead of chi_d draws */
  double pairs;    /* ordered pairs of vectors that share a block */
  /* So many independent vectors have a mean as spread as these at the most: E |sum W_r|^2 <= m^2 /
   * independent E |W|^2 for every W_r = W(w_r) of mean 0. Let u and v be the directions of two vectors of a
   * block, uniform and orthogonal, lengths apart. E W(u).W(v) is a form on the sphere that commutes with
   * rotations: on harmonics of degree l it is the Gegenbauer polynomial of value 1 at 1, at 0 (Funk and
   * Hecke): 0 for odd l, -1/(d-1), 3/(d^2-1), and smaller from there on. So E W_r.W_s <= 3/(d^2-1) E |W|^2,
   * and a block of s adds at most s (1 + 3 (s-1)/(d^2-1)) E |W|^2. */
  double independent;
  /* The same for tails of sums of bounded variables, where all that is used is that blocks are independent:
   * m^2 / sum s^2; and the largest share s / m. */
  double blocks, share;
} feature_law;

/* Another number of vectors. */
void feature_law_resize(feature_law *, int64_t m);
/* From the descriptor of a view. Returns why there is no law, or NULL. */
const char *feature_law_of(const evidence *, feature_law *);
/* Positive, hyperbolic or trigonometric: the softmax kernel by a known formula. */
bool feature_law_is_favor(const feature_law *);

/* Moments of up to 8 rows of the probe, kept in e->cache for all variants of a block that draw such features.
 * EUNSUPPORTED: they cost more than `work` multiply-adds. Of the kinds of feature_law_is_favor. */
attn_status row_moments(const evidence *e, const probe *, attn_features_kind, double work,
                        const moment_entry **);
static const double row_moments_work = 0x1.4p30; /* what a check may spend: n_kv up to 4096 at d = d_v = 64 */

/* P(Y < D/2) is at most this: with V = (rho - 1) / independent 4 V for any Y (Chebyshev); for Y >= 0, where a
 * block's part of D - Y is at most its share b of D, exp(-V/b^2 h(b/2V)), h(x) = (1+x) ln(1+x) - x (Bennett
 * 1962). */
double moment_collapse(const feature_law *, const row_moment *);

#endif
