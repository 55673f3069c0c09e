/* calibration.h - how fast this machine runs each variant, measured once and kept.
 *
 * The calibration is a small sweep: every variant of a grid, at its default parameters, on n = 1024, d = 64,
 * one head, causal and not, executed once. Its journal is kept in $ATTNLAB_CALIBRATION (none if that is
 * empty), else attnlab/calibration-CPU.jsonl in $XDG_CACHE_HOME or ~/.cache; only what is missing there, or
 * was measured with another build of the program, is run. */
#ifndef EXPERIMENTS_RUNNER_CALIBRATION_H
#define EXPERIMENTS_RUNNER_CALIBRATION_H

#include "experiments/grid/grid.h"
#include "experiments/results/set.h"

enum { CALIBRATION_N = 1024, CALIBRATION_D = 64 };

/* Fills an initialised set with rows for each variant, baseline and number of threads of the grid (and others
 * that the file has): time_median is that of the one execution, end_time - start_time includes the
 * verification. No rows where there is no file to keep them in. EEXIST: another process is calibrating. */
attn_status calibration_load(const grid *, char *const *plugins, result_set *);

/* The same of what is kept already: nothing is measured, and there are no rows where there is no file. */
attn_status calibration_read(result_set *);

#endif
