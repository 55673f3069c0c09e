/* exact_residual.h - which keys of a row are the head's where features estimate the others
 * (attn_view.residual), and what makes products of the features weights beside the head's. */
#ifndef EXPERIMENTS_REFERENCE_EXACT_RESIDUAL_H
#define EXPERIMENTS_REFERENCE_EXACT_RESIDUAL_H

#include "experiments/reference/exact.h"

/* Arguments as in attn_plan_execute. */
typedef struct residual_run {
  const attn_plan *plan;
  const attn_residual *of;
  const void *q, *k, *v;
  const int64_t *kv_len;
} residual_run;

/* Runs of a row of its head, at most. */
int64_t residual_runs(const attn_residual *);
/* inside[j] <- is key j, of n_kv, the head's, for a query that sees it? runs: room for residual_runs. */
attn_status residual_mark(const residual_run *, const sample_row *, attn_run *runs, bool *inside);
/* phi(q).phi(k) times this estimates exp(score), by the law of the features, or is the other kernel's
 * value. */
double residual_gain(const attn_feature_map *);

#endif
