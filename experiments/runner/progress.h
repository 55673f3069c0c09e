/* progress.h - how far a sweep is, on stderr: a status line on a terminal, else a line every 30 s. */
#ifndef EXPERIMENTS_RUNNER_PROGRESS_H
#define EXPERIMENTS_RUNNER_PROGRESS_H

#include "experiments/grid/grid.h"
#include "experiments/support/status_line.h"

typedef struct progress {
  status_line line;
  bool quiet, seconds;
  size_t runs, done;   /* of this session */
  double work, worked; /* the same by estimated time */
  double start, advanced, shown;
  size_t verdicts[VERDICTS], failed; /* of the runs that have ended */
} progress;

/* seconds: work is an estimate in seconds, else it only compares runs. */
void progress_start(progress *, size_t runs, double work, bool seconds, bool quiet);
/* A run of this much work has ended. */
void progress_advance(progress *, double work, const result_row *);
/* Shows the state if it is due. run: the one of the block that is executed, NULL if none is. */
void progress_tick(progress *, const grid_block *, const grid_run *run);
/* Removes the status line, so that a message may follow. */
void progress_stop(progress *);

#endif
