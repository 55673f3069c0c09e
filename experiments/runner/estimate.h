/* estimate.h - what a run, and a whole sweep, would take: attnlab run --dry-run, and the est_ columns of the
 * results.
 *
 * The seconds come from the variants' cost formulas and the machine's calibration (calibration.h). */
#ifndef EXPERIMENTS_RUNNER_ESTIMATE_H
#define EXPERIMENTS_RUNNER_ESTIMATE_H

#include "experiments/grid/grid.h"
#include "experiments/results/set.h"

typedef struct run_estimate {
  attn_cost cost;
  size_t work;      /* bytes of work memory */
  double execution; /* seconds of one execution; 0 of a baseline, which is not timed */
  double whole;     /* seconds of the run in the sweep, at most its budget */
  double memory;    /* bytes of Q, K, V, O and work */
  bool fits; /* within budget.memory; else the seconds are NaN, as where the calibration has no such run */
} run_estimate;

/* EFOREIGN: the variant gave no estimate; errors of measure_tensor_bytes. */
attn_status estimate_run(const grid_block *, const grid_run *, const config *, const result_set *calibration,
                         run_estimate *);

/* Prints a table for each block to stdout, a line for the runs of a setting (multiply-adds, work memory),
 * and, unless quiet, the sums with the time of all runs to stderr; or with json all of it as one document, a
 * run each with its rough time. The calibration is made if there is none. */
attn_status estimate_print(const grid *, const config *, char *const *plugins, bool json, bool quiet);

#endif
