/* selector_draws.h - a selector with weights draws repeatedly, under other seeds, on a small problem of the
 * run's queries, keys and values: how often it keeps keys, and the error of its sums, each less the mean and
 * over the standard deviation that its law states.
 *
 * Where the law itself depends on the seed - a budget or a head that is drawn first - each draw is held to
 * its own: given that first stage the rest is drawn afresh, so that these numbers still have mean 0 and
 * deviation 1. */
#ifndef EXPERIMENTS_EVIDENCE_WEIGHTS_SELECTOR_DRAWS_H
#define EXPERIMENTS_EVIDENCE_WEIGHTS_SELECTOR_DRAWS_H

#include "experiments/evidence/judged_run.h"

enum { WEIGHT_ROWS = 4, WEIGHT_KEYS = 8, WEIGHT_PAIRS = 8, WEIGHT_DIRECTIONS = 4 };
enum { WEIGHT_TESTS = WEIGHT_ROWS * (WEIGHT_KEYS + WEIGHT_PAIRS + 1 + WEIGHT_DIRECTIONS) };

typedef enum {
  WEIGHT_KEPT,   /* is key a kept? */
  WEIGHT_BOTH,   /* are a and b? */
  WEIGHT_SUM,    /* D~ / D */
  WEIGHT_VALUES, /* (numerator - D~ o) / D along random signs a */
} weight_kind;

typedef struct weight_test {
  weight_kind kind;
  int row;
  int64_t a, b;
  double mean, deviation; /* by the law of the run's own seed */
  double *off;            /* [draws] */
} weight_test;

typedef struct weight_draws {
  const char *why; /* NULL, or why there are none */
  int64_t keys, draws, rows, count;
  int64_t row[WEIGHT_ROWS];
  int64_t
      missed[WEIGHT_ROWS]; /* draws whose D~ is off by more than the promised share (attn_selector.epsilon) */
  weight_test test[WEIGHT_TESTS];
  double *off;
} weight_draws;

/* Of the run's variant, made at the first call and kept in e->cache. */
attn_status weight_draws_get(const evidence *, const weight_draws **);
void weight_draws_free(weight_draws *);

/* The least p-value of the tests of some kinds, times their number, and that test; NULL: there are none. */
const weight_test *weight_draws_worst(const weight_draws *, const bool kinds[WEIGHT_VALUES + 1], double *p,
                                      int64_t *tests);

#endif
