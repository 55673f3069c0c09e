/* scheme_law.h - what a row becomes in a store by the law of its scheme (attn_kv_law), and how large its
 * error is over draws. Written apart from core/engines/stored/kv_codes.c. */
#ifndef EXPERIMENTS_MATHEMATICS_SCHEME_LAW_H
#define EXPERIMENTS_MATHEMATICS_SCHEME_LAW_H

#include "attn_variant.h"

/* The levels for a coordinate of a uniform unit vector of R^d, ascending, and mean and variance of the square
 * of what they leave of it, by quadrature. Without bits there is one, 0. */
typedef struct scheme_levels {
  int64_t d, count;
  double at[16], mean, variance;
} scheme_levels;
void scheme_levels_make(int64_t bits, int64_t d, scheme_levels *);

static inline bool scheme_law_stated(const attn_kv_law *l) { return l->bits || l->signs || l->turned; }

/* kept [d] of x [d]; room [2 d]. Returns false where the rounding of fp64 could decide a level or a sign. */
bool scheme_law_row(const attn_kv_law *, const scheme_levels *, const double *x, double *kept, double *room);

/* Over draws of R and S, of any unit vector x: D = E |x - u^|^2 = d mean; and of x^
 *   E |x - x^|^2 = D, or with signs D ((pi/2) d - 1) / m;   E x.(x^ - x) = 0 with signs.
 * Of the variances of |x - x^|^2 without signs and of x.(x^ - x) with them at most: d variance (1 + 3 / (d +
 * 1)), since even functions of orthogonal components of a uniform vector correlate by at most 3 / (d^2 - 1);
 * and ((pi/2) D - [no bits]) / m, the law of the paper averaged over R. */
double scheme_error_mean(const attn_kv_law *, const scheme_levels *);
double scheme_error_variance(const attn_kv_law *, const scheme_levels *);
/* |x - x^|^2 of a draw; room [3 d]. */
double scheme_error_draw(const attn_kv_law *, const scheme_levels *, attn_rng *, double *room);

#endif
