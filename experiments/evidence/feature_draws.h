/* feature_draws.h - the random vectors behind a feature map: those of a plan, and many fresh draws from its
 * generator: plans of the same variant and parameters with other seeds, at most 2 d features each. */
#ifndef EXPERIMENTS_EVIDENCE_FEATURE_DRAWS_H
#define EXPERIMENTS_EVIDENCE_FEATURE_DRAWS_H

#include "experiments/evidence/probe.h"
#include "experiments/mathematics/entries.h"
#include "experiments/mathematics/estimator.h"

typedef struct draws {
  int64_t m, d;
  double *w; /* [m, d], E |w|^2 = d */
} draws;

/* Reads those of the probe's kv_head off its map; m and d are set. EUNSUPPORTED: it shows too little of them.
 * Uses plan, problem, view and kv_head of the probe alone. Release w. */
attn_status draws_read(const probe *, const feature_law *, draws *);

typedef struct fresh_draws {
  region memory;
  feature_law law; /* of one plan */
  int64_t plans;
  double *w;             /* [plans, m, d], E |w|^2 = d; not of ATTN_FEATURES_OTHER */
  entry_point far, near; /* |x + y|^2 = 1 and 1/4 */
  /* Turns of a point: d of them, of which the sums x + y are orthogonal to one another, as are the
   * differences, of the kinds of feature_law_is_favor; else 1, the first, with x + y along (1, 1, ...). */
  int64_t turns;
  /* [plans] A vector's product is the estimate that it makes alone, without the factor of norms: exp(w.(x+y))
   * (times the law's weights), cosh of that, cos w.(x-y), max(w.x, 0) max(w.y, 0), or the product as it is.
   * Means over a plan's vectors: of the product at the first turn of far and at all turns; at all turns of
   * near of its square, and of the product of two neighbours within a block. */
  double *along, *mean, *square, *pair;
  /* Softmax features of unbiased draws, eps = 0: a small attention problem as the first plans compute it, and
   * what they get wrong there; else NULL and 0. */
  estimator *small;
  int64_t outputs;
  estimate_error *errors; /* [outputs] */
} fresh_draws;

/* Kept in the probe. So many plans that 2 % of the mean product are 7 standard errors, or as many as the cost
 * of a check allows. EUNSUPPORTED: vectors of more than 128 components, or no named seed. */
attn_status fresh_draws_get(const evidence *, probe *, const feature_law *, const fresh_draws **);
void fresh_draws_free(fresh_draws *);

#endif
