/* toeplitz_factor.h - the factor e^b that the bias of a distance is, by its definition: the problem's, or the
 * law of the variant. */
#ifndef EXPERIMENTS_CHECKS_FIXED_TOEPLITZ_FACTOR_H
#define EXPERIMENTS_CHECKS_FIXED_TOEPLITZ_FACTOR_H

#include "experiments/reference/transform.h"

#include <math.h>

static inline double toeplitz_factor(const attn_toeplitz *x, const attn_problem *p, int64_t batch,
                                     int64_t head, int64_t i, int64_t j) {
  return exp(p->score.relative ? transform_score(p, batch, head, i, j, 0).score
                               : x->law(x->state, head, attn_problem_position(p, i) - j));
}

#endif
