/* watched_heads.h - what a run selects for the first queries of some kv heads, which checks judge one after
 * the other; of kv heads that share a budget all of a batch entry. */
#ifndef EXPERIMENTS_CHECKS_SELECTION_WATCHED_HEADS_H
#define EXPERIMENTS_CHECKS_SELECTION_WATCHED_HEADS_H

#include "experiments/checks/check.h"
#include "experiments/evidence/head.h"
#include "experiments/evidence/rows.h"
#include "experiments/support/region.h"

/* The first queries of a kv head: positions first ... n - 1 have one, that of `first` is query `skipped`. */
typedef struct watched {
  const evidence *e;
  int64_t batch, kv_head, keys, first, n, skipped;
  head_data head;
  bool *held;              /* [n, n] */
  double *weights, *later; /* [n, n], or NULL: attn_kv_history */
  double *products;        /* [heads, n, n], or NULL */
  region memory;           /* of these */
} watched;

/* What is known of kv heads together that share their budgets: how many, keys beyond equal budgets, and when
 * the prompt is over the best score that a head gave up, which could have kept more, and the worst of those
 * that a head kept beyond its own. */
typedef struct head_pool {
  int64_t heads, more;
  double went, stayed, tolerance;
} head_pool;

/* Judges the steps of a head; says what is wrong at the first, and returns what is the worst. */
typedef outcome head_judge(const watched *, head_pool *, char *text, size_t size);
typedef outcome pool_judge(const head_pool *, char *text, size_t size);

/* settle: of the heads that share, after all. */
attn_status watched_heads_check(const evidence *, head_judge *, pool_judge *settle, result_bound *);

#endif
