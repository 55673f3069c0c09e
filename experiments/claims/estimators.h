/* estimators.h - outputs and denominators of variants that estimate them, for claims. */
#ifndef EXPERIMENTS_CLAIMS_ESTIMATORS_H
#define EXPERIMENTS_CLAIMS_ESTIMATORS_H

#include "experiments/claims/claim.h"

/* Output and log-sum-exp of every row, [batch, heads, n_q, d_v] and [batch, heads, n_q], of the tensors' type
 * and in fp64. */
typedef struct estimate {
  void *o;
  double *lse;
} estimate;

attn_status estimate_make(const data_qkv *, bool causal, const char *spec,
                          estimate *); /* free it also after a failure */
void estimate_free(estimate *);

static inline bool figure_holds(const claim_figure *f, double x) { return f->low <= x && x <= f->high; }

#endif
