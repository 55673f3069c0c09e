/* draws.h - the random vectors behind a feature map of FAVOR+. */
#ifndef EXPERIMENTS_MATHEMATICS_DRAWS_H
#define EXPERIMENTS_MATHEMATICS_DRAWS_H

#include "experiments/mathematics/moments.h"

typedef struct draws {
  int64_t m, d;
  double *w; /* [m, d], E |w|^2 = d */
} draws;

/* Reads them off the probe's map; m and d are set. Uses plan, problem and view of the probe alone. Release
 * w. */
attn_status draws_read(const probe *, attn_features_kind, draws *);

#endif
