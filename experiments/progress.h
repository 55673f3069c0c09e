/* progress.h - how far a sweep is, on stderr: one line that is rewritten on a terminal, else a line every 30
 * s. */
#ifndef EXPERIMENTS_PROGRESS_H
#define EXPERIMENTS_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct progress {
  bool terminal, quiet;
  size_t runs, done;   /* of this session */
  double work, worked; /* the same by estimated time, in any unit */
  double start, shown;
} progress;

void progress_start(progress *, size_t runs, double work, bool quiet);
/* A run of this much work has ended. */
void progress_advance(progress *, double work);
/* Shows the line if it is due; what: the run or block at hand. */
void progress_tick(progress *, const char *what);
/* Clears the line of a terminal, so that a message may follow. */
void progress_stop(progress *);

#endif
