/* draws.h - the random vectors behind a feature map of FAVOR+. */
#ifndef EXPERIMENTS_CHECKS_DRAWS_H
#define EXPERIMENTS_CHECKS_DRAWS_H

#include "checks/probe.h"

typedef struct draws {
  int64_t m, d;
  double *w; /* [m, d], E |w|^2 = d */
} draws;

/* Reads them off the probe's map, whose kernel is positive, hyperbolic, trig or relu; m and d are set.
 * Release w. */
attn_status draws_read(const probe *, const char *kernel, draws *);

#endif
