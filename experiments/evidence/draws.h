/* draws.h - the random vectors behind a feature map: those of a plan, and many fresh draws from its
 * generator: plans of the same variant and parameters with other seeds, at most 2 d features each. */
#ifndef EXPERIMENTS_EVIDENCE_DRAWS_H
#define EXPERIMENTS_EVIDENCE_DRAWS_H

#include "experiments/evidence/probe.h"
#include "experiments/mathematics/feature_law.h"

typedef struct draws {
  int64_t m, d;
  double *w; /* [m, d], E |w|^2 = d */
} draws;

/* Reads them off the probe's map; m and d are set. Uses plan, problem and view of the probe alone. Release
 * w. */
attn_status draws_read(const probe *, attn_features_kind, draws *);

enum { FRESH_POINTS = 2 };

/* Two points x and y at 60 degrees (d > 1): the kernel's entries that are estimated. */
typedef struct fresh_point {
  double x_square, y_square, inner;
} fresh_point;

typedef struct fresh_draws {
  feature_law law; /* of one plan */
  int64_t plans;
  double *w;                       /* [plans, m, d], E |w|^2 = d */
  fresh_point point[FRESH_POINTS]; /* |x + y|^2 = 1 and 1/4 */
  /* [plans, m] the estimate of each w, without the factor of norms: exp(w.(x+y)), cosh of that, cos w.(x-y),
   * max(w.x, 0) max(w.y, 0), or the product as it is */
  double *product[FRESH_POINTS];
} fresh_draws;

/* Kept in the probe. EUNSUPPORTED: vectors of more than 128 components, or no named seed. */
attn_status fresh_draws_get(const evidence *, probe *, const feature_law *, const fresh_draws **);
void fresh_draws_free(fresh_draws *);

#endif
