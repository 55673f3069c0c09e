/* feature_maps.h - random features of a point, by their definition and apart from any feature map. */
#ifndef EXPERIMENTS_MATHEMATICS_FEATURE_MAPS_H
#define EXPERIMENTS_MATHEMATICS_FEATURE_MAPS_H

#include "experiments/mathematics/feature_law.h"

/* Columns of f for the vectors of a law: m, or 2 m of hyperbolic and trigonometric features. */
int64_t features_columns(const feature_law *);

/* f_c = exp(-scale) phi_c(x), phi of attn_features_kind and attn_feature_law.a, w [m, d] as draws_read finds
 * them, x [d] times the root of the problem's scale. error[c]: how far f of a map in fp64 may be from that,
 *   by its products, sums and exponentials, and the rounding of w as it was read, 2^-46 (1 + |w_r|) a
 *   component, of weights e^t 2^-46 |t| more.
 * False: a product is so large that its error is no small one, or something is not finite. */
bool features_fill(const feature_law *, const double *w, const double *x, double scale, double *f,
                   double *error);

#endif
