/* spread.h - attention over the processes that mpirun started, by attn_ring, measured and judged on the first
 * of them. */
#ifndef EXPERIMENTS_RING_SPREAD_H
#define EXPERIMENTS_RING_SPREAD_H

#include "data/data.h"
#include "experiments/results/row.h"

enum { SPREAD_MAX = 32 };

typedef struct spread_options {
  const char *spec, *in; /* in: a file of q, k, v; NULL: Gaussian ones of the request */
  data_request request;
  bool has_dtype; /* convert what is read to the request's */
  bool causal;
  int64_t n; /* read the first n positions; 0: all */
  int threads;
} spread_options;

/* The ring on some of the processes. */
typedef struct spread_row {
  int ranks;
  double time; /* seconds: from the first to begin to the last to end */
  double compute_least, compute_most, wait_least, wait_most; /* seconds, over the ranks */
  int64_t sent;                                              /* bytes, the most of a rank */
  result_bound exact, apart;                                 /* see ring_judge.h */
} spread_row;

typedef struct spread_result {
  attn_problem problem;
  double alone; /* seconds of one process without a ring */
  result_bound alone_exact;
  int count;
  spread_row rows[SPREAD_MAX]; /* 2, 4, 8 ... and all of the processes */
} spread_result;

/* Collective over MPI_COMM_WORLD: all processes get the same status and result. Times are those of the
 * fastest of up to five executions, as many as fit a second. */
attn_status spread_measure(const spread_options *, spread_result *);

/* Starts MPI, measures, prints a table from the first process, ends MPI. Returns the exit code, the same on
 * all processes: a violated bound is 1, one that cannot be judged 3. name: "attnlab ring". */
int spread_command(const char *name, const spread_options *);

#endif
