/* run_law.h - rows of a run with weighted keys, against the moments that the law of the weights gives
 * them. */
#ifndef EXPERIMENTS_CHECKS_TAILS_RUN_LAW_H
#define EXPERIMENTS_CHECKS_TAILS_RUN_LAW_H

#include "experiments/checks/check_table.h"

enum { RUN_LAW_ROWS = 8, RUN_LAW_KEYS = 1024 };

/* In units of the exact denominator D; o~ is the run's row, o the exact one, W = D~ (o~ - o). */
typedef struct run_law {
  const char *why; /* the row cannot be judged */
  double w;        /* |W| of the run's draw, less what rounding may do */
  double error;    /* |o~ - o|, the same */
  double square;   /* E |W|^2 */
  double spread;   /* Var D~ */
  double always;   /* the exact weights of keys that are always taken, and of the sink */
} run_law;

/* Up to RUN_LAW_ROWS judged rows, fewer where they have many keys; *count: how many. None where a row may
 * have more than RUN_LAW_KEYS keys. */
attn_status run_laws(const evidence *, run_law out[RUN_LAW_ROWS], int64_t *count);

/* Why a law of weights says nothing here; NULL: it does. */
const char *law_missing(const evidence *);

#endif
