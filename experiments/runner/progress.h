/* progress.h - how far a sweep is, on stderr: a block that is redrawn (live.h) on a terminal, else a line
 * every 30 s. */
#ifndef EXPERIMENTS_RUNNER_PROGRESS_H
#define EXPERIMENTS_RUNNER_PROGRESS_H

#include "experiments/grid/grid.h"
#include "experiments/support/live.h"

enum { PROGRESS_ROWS = 6 };

/* A run that has ended, as the block shows it. */
typedef struct progress_row {
  char spec[LIVE_TEXT], error[24], time[24];
  int64_t n;
  const char *outcome; /* its verdict or status */
  live_style style;
} progress_row;

typedef struct progress {
  live live;
  bool quiet, seconds;
  size_t runs, done;   /* of this session */
  double work, worked; /* the same by estimated time */
  double start, advanced, shown;
  size_t verdicts[VERDICT_ERROR + 1], failed; /* of the runs that have ended */
  progress_row rows[PROGRESS_ROWS];           /* the last ones, a ring */
  const grid_block *block;
  size_t place, blocks; /* the number of the block, from 0, and how many there are */
} progress;

/* seconds: work is an estimate in seconds, else it only compares runs. */
void progress_start(progress *, size_t runs, size_t blocks, double work, bool seconds, bool quiet);
/* The block that is begun, which must outlive it. */
void progress_block(progress *, const grid_block *, size_t place);
/* A run of this much work has ended. */
void progress_advance(progress *, double work, const grid_run *, const result_row *);
/* Shows the state if it is due; run: the one at work, NULL if none is. */
void progress_tick(progress *, const grid_run *);
/* Shows the state of a terminal for the last time, and clears it, so that a message may follow. */
void progress_stop(progress *);

#endif
