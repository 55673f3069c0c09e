/* entries.h - exact mean and mean square error of one estimated entry of the kernel, A^ = (1/m) sum_r
 * phi_r(x).phi_r(y).
 *
 * With Z = |x+y|^2, Delta = |x-y|^2, and s = Z (positive, hyperbolic; factor kappa = exp(-(|x|^2+|y|^2)/2))
 * or s = -Delta (trig; factor 1/kappa), everything follows from two functions of the vectors' law:
 *   G(s) = E exp(w.b), |b|^2 = s        exp(s/2), or 0F1(;d/2;ds/4) for vectors of length sqrt(d)
 *   C(s) = E exp((w_r+w_s).b), r != s   exp(s) if independent; in a block 1F1(d;d/2;s/2), since w_r + w_s is
 *                                       isotropic
 *                                       with |.|^2 ~ chi^2_2d; 0F1(;d/2;ds/2) for vectors of length sqrt(d)
 * (s < 0: the cosine). With the weights of a (attn_feature_law) a product of p of them is positive and has
 *   T_p(s) = E (1 - 4a)^(p d/2) exp(2 p a |w|^2) exp(sqrt(1 - 4a) w.b) = t_p G((1 - 4a) s / (1 - 4pa)),
 *   t_p = (1 - 4a)^(p d/2) (1 - 4pa)^(-d/2),   infinite from a = 1/4p on, since the weight makes w normal of
 *   variance
 * 1 / (1 - 4pa); of vectors of length sqrt(d) t_p G((1 - 4a) s), t_p = (1 - 4a)^(p d/2) exp(2 p a d).
 * Products of two vectors of a block have t_p^2 and C in place of t_p and G. T_1 and its C are those of a =
 * 0, except for that length. E A^ = factor G, and with N_s ordered pairs that share a block
 *   E (A^ - E A^)^2 = factor^2 ((S - G^2) / m + N_s (C - G^2) / m^2),  S = T_2(4s), or (G(4s) + 1) / 2 for
 *     kinds other than positive. */
#ifndef EXPERIMENTS_MATHEMATICS_ENTRIES_H
#define EXPERIMENTS_MATHEMATICS_ENTRIES_H

#include "experiments/mathematics/feature_law.h"

double entry_single(const feature_law *, double s); /* G */
double entry_pair(const feature_law *, double s);   /* C, within a block if orthogonal */
/* S: the mean square of one vector's product, without factor; its mean fourth power; and the mean square of
 * the product of two vectors of a block. */
double entry_square(const feature_law *, double s);
double entry_fourth(const feature_law *, double s);
double entry_pair_square(const feature_law *, double s);
double entry_exponent(const feature_law *, double norms, double inner); /* s, norms = |x|^2 + |y|^2 */
double entry_spread(const feature_law *, double s);                     /* the variance of the mean product */
/* At most the variance of the mean product, and of the mean square, over all vectors and over `turns` pairs
 * of points of the same s whose sums (trig: differences) b_k are orthogonal to one another: one vector's
 * products at two of them have E exp(w.(b_k + b_l)) = G(2s), and vectors of a block count as `independent` of
 * the law says. */
double entry_mean_spread(const feature_law *, double s, int64_t turns);
double entry_square_spread(const feature_law *, double s, int64_t turns);

typedef struct entry_moments {
  double mean, error; /* E A^ and E (A^ - E A^)^2 */
} entry_moments;
/* Of the kinds of feature_law_is_favor. */
entry_moments entry_of(const feature_law *, double x_square, double y_square, double inner);

/* E max(w.x, 0) max(w.y, 0) = |x| |y| (sin t + (pi - t) cos t) / 2 pi, and of the squares |x|^2 |y|^2 (3 sin
 * t cos t + (pi - t)(1 + 2 cos^2 t)) / 2 pi for Gaussian w; E |w|^4 = d (d + 2), or d^2 of length sqrt(d). */
void entry_rectified(const feature_law *, double x_square, double y_square, double inner, double *mean,
                     double *square);

/* Two points x and y at 60 degrees (d > 1): the kernel's entries that are estimated. */
typedef struct entry_point {
  double x_square, y_square, inner;
} entry_point;

/* Turn k of the point with |x + y|^2 = z: x and y are sqrt(z) (b_k / 2 +- b_(k+1) / sqrt(12)); of one
 * component, in the ratio 1 to (1 + sqrt(3)) / 2. Rows k of x and y [turns, d]. */
void entry_point_make(int64_t d, int64_t turns, double z, double *x, double *y, entry_point *out);

#endif
