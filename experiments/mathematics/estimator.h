/* estimator.h - a small attention problem that random features of FAVOR+ estimate, in fp64: its exact rows,
 * the exact moments of the estimate (pair_moments.h), and draws of it by the law, which share nothing with
 * any feature map.
 *
 * All queries and keys lie in a random subspace of up to 16 dimensions: of a block of orthogonal vectors only
 * the coordinates there matter, and these are as many orthonormal columns of d components, times lengths.
 * Every other key is twice as long, and the first component of its value marks it: vectors of a wrong length
 * move that one. */
#ifndef EXPERIMENTS_MATHEMATICS_ESTIMATOR_H
#define EXPERIMENTS_MATHEMATICS_ESTIMATOR_H

#include "experiments/mathematics/feature_law.h"
#include "experiments/support/region.h"

enum { ESTIMATOR_TOKENS = 32, ESTIMATOR_ROWS = 8, ESTIMATOR_VALUES = 8 };

typedef struct estimator {
  region memory;
  feature_law law;
  bool causal;
  double *x, *y; /* [TOKENS, d] queries and keys, times the root of the problem's scale */
  double v[ESTIMATOR_TOKENS * ESTIMATOR_VALUES];
  int64_t rank; /* of the subspace, and one more: of what lies outside, where queries and keys have 0 */
  double *x_low, *y_low; /* [TOKENS, rank] their coordinates */
  /* Of the rows that are judged: their place, keys seen, weights, D, output, and v^2 of pair_moments.h. */
  int64_t row[ESTIMATOR_ROWS], seen[ESTIMATOR_ROWS];
  double p[ESTIMATOR_ROWS * ESTIMATOR_TOKENS], sum[ESTIMATOR_ROWS], o[ESTIMATOR_ROWS * ESTIMATOR_VALUES];
  double spread[ESTIMATOR_ROWS];
  double deviation; /* standard deviation of `along`, or more */
} estimator;

/* With W = (Y/D) (o~ - o), the error of a row's numerator over the exact denominator. */
typedef struct estimate_error {
  double along;  /* mean over rows of the first component of W, of mean 0 */
  double square; /* mean over rows of independent |W|^2 / v^2, of mean 1 (iid vectors) or at most 1 */
} estimate_error;

/* Of the kinds of feature_law_is_favor, lengths not constant. NULL: no memory. */
estimator *estimator_make(const feature_law *, bool causal, attn_rng *);
void estimator_free(estimator *);

/* From an output [TOKENS, VALUES] and Y / D of the judged rows. */
estimate_error estimator_judge(const estimator *, const double *o, const double *share);
/* By a draw of the law's vectors. ENOMEM. */
attn_status estimator_draw(const estimator *, attn_rng *, estimate_error *);

#endif
