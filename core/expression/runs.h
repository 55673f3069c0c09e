/* runs.h - sets of keys as runs of step 1, ascending and disjoint, with weights. */
#ifndef ATTN_CORE_EXPRESSION_RUNS_H
#define ATTN_CORE_EXPRESSION_RUNS_H

#include "core/internal.h"

/* log_weights: of each run; NULL: they are 0. count may exceed `most`: there was no room for the last of
 * them. */
typedef struct run_set {
  attn_run *runs;
  double *log_weights;
  int64_t count, most;
} run_set;

/* Adds a run behind the others, or to the last of them. */
void run_add(run_set *, int64_t first, int64_t end, double log_weight);
/* The keys from `begin` to `end` of runs of any step, in any order. It consumes the runs. */
void run_add_any(run_set *, attn_run *runs, int64_t count, int64_t begin, int64_t end);
/* out <- the keys of `owned`, and of those of `more` from `begin` to `end` the ones that are not among
 * them. */
void run_join(const run_set *owned, const run_set *more, int64_t begin, int64_t end, run_set *out);
/* Do they have a key in common? */
bool run_sets_intersect(const run_set *, const run_set *);
bool run_has(const run_set *, int64_t key);

#endif
