/* certify.h - what a sample of rows proves about all rows, for any distribution of errors. */
#ifndef EXPERIMENTS_EVIDENCE_CERTIFY_H
#define EXPERIMENTS_EVIDENCE_CERTIFY_H

#include "experiments/evidence/judged_run.h"

#define CERTIFY_ALPHA 0.05

/* A stratum's share of a mean over all rows. */
typedef struct certify_stratum {
  double size;   /* rows in the stratum */
  int64_t count; /* rows drawn from it without replacement */
  double mean;   /* of the values drawn */
  double spread; /* their standard deviation, divisor count */
  double bound;  /* every value of the stratum is in [0, bound] */
} certify_stratum;

/* The mean over all rows is within this of sum size mean / sum size, with probability 1 - alpha over the
 * sample (RS-2): the less of an empirical Bernstein-Serfling bound per stratum at alpha / 2H (Bardenet &
 * Maillard 2015, Thm 4.3) and Hoeffding's for the whole sample at alpha / 2. */
double certify_half_width(const certify_stratum *, int64_t count, double alpha);

/* With probability 1 - alpha at most this fraction of all rows exceeds the largest sampled value (RS-3). Rows
 * up to `last` of x, which must be whole strata. 0 for a census. */
double certify_tail(const attn_problem *, const exact_rows *x, int64_t last, double alpha);

/* The certified 95 % interval of err_rel_fro: squares and references are |o^ - o|^2 and |o|^2 of the sampled
 * rows. Whether a row is in the sample or not, |o^_i - o_i| <= |o^_i - mean V| + max |v_j - mean V|: nothing
 * is presumed of the algorithm. hi is infinite where nothing bounds |O| away from 0;
 * both are NaN without e->v, or if some row of the output is NaN. */
typedef struct certified {
  double lo, hi;
} certified;
certified certify_frobenius(const evidence *, const double *squares, const double *references);

#endif
