/* picked_case.h - weights of a method that picks rows, read off, beside what they should be. */
#ifndef EXPERIMENTS_CHECKS_LOWRANK_PICKED_CASE_H
#define EXPERIMENTS_CHECKS_LOWRANK_PICKED_CASE_H

#include "experiments/checks/lowrank/defined.h"
#include "experiments/evidence/rows.h"

enum { PICKED_SIDE = 384 };

typedef struct picked_case {
  low_rank_head head;
  int64_t n;
  double *w, *own, *exact; /* [n, n]: the method's, by definition, and softmax */
  double *amplified;       /* [n] of `own` */
  double rounding;         /* of a weight, and of its difference to another: a share of it */
  outcome worst;           /* of the rows that are judged */
} picked_case;

/* Of the first `side` queries and keys at most, whose rows are picked again, and the law, which may be
 * another than the run's. n: 0, with a verdict, where there are no such rows. */
attn_status picked_case_make(const evidence *, const attn_low_rank *, int64_t side, picked_case *,
                             result_bound *);
attn_status picked_settle(const picked_case *, result_bound *);

#endif
