/* change.h - what changed between two results files, run by run (pairs.h): times, errors, verdicts.
 *
 * Time. The logarithm of a run's median time has the standard error s = ln(hi / lo) / (2 * 1.96), of its 95 %
 * bootstrap interval, and no less than fit_least_sigma, because runs of different sessions are not nearer.
 * The log ratio of b over a then has s_a^2 + s_b^2, and Student's distribution with Welch and Satterthwaite's
 * degrees of freedom. A run is slower if the hypothesis "no slower than the limit allows" is rejected: its
 * p-values, one for each run that was timed in both files and one for their geometric mean, are corrected by
 * Holm, so that at most one comparison in twenty without a change calls anything slower, whatever the number
 * of runs. A run with one sample has no interval and decides nothing.
 *
 * Geometric mean. The runs are a sample, and fit_least_sigma of each file is common to all of them.
 *
 * Error. It has changed if it differs by more than a hundredth and by more than eight times the rounding that
 * exact variants show on the same input (the least in either file; without one sqrt(n_kv) u, for sums of n_kv
 * terms in random order; Higham and Mary, SIAM J. Sci. Comput. 41, 2019); of samples of different size, if
 * their intervals are apart. */
#ifndef EXPERIMENTS_ANALYSIS_CHANGE_H
#define EXPERIMENTS_ANALYSIS_CHANGE_H

#include "experiments/analysis/fit.h"
#include "experiments/analysis/pairs.h"

#define CHANGE_LEVEL 0.05 /* of all decisions on time together */

/* Of a ratio of times. */
typedef enum { CHANGE_NONE, CHANGE_SLOWER, CHANGE_FASTER, CHANGE_UNTIMED } change_word;
extern const char *const change_words[];

typedef struct run_change {
  const result_row *a, *b;
  fit_interval ratio; /* time of b over time of a; ends NaN: no interval; all NaN: not timed in both */
  double p_slower;    /* "no slower than the limit", before correction; NaN: undecided */
  double p_faster;
  change_word time;
  bool error; /* has changed */
  bool verdict, model_verdict, status;
  bool violated; /* b's verdict is, a's is not */
  bool failed;   /* b did not end well, a did */
} run_change;

typedef struct results_change {
  run_change *runs; /* slower ones first, then by ratio, descending; the untimed last */
  size_t count;
  fit_interval mean; /* geometric, of the ratios */
  double p_mean;     /* as p_slower */
  bool mean_slower;
  size_t timed, undecided, slower, faster, errors, verdicts, violated, failed, statuses;
} results_change;

/* limit: the largest ratio not counted as a regression, 1.05. The pairs' sets must outlive the changes.
 * ENOMEM */
attn_status change_make(const result_pairs *, double limit, results_change *out);
void change_free(results_change *);

/* The bounds that are violated in b and were not in a, "FP-1 SP-2"; to be freed, NULL: no memory. */
char *change_bounds(const run_change *);

#endif
