/* run.h - evaluates the swaps of a model on one set of windows, in a process of its own: a variant that crashes inside a
 * model is a row. */
#ifndef EXPERIMENTS_QUALITY_RUN_H
#define EXPERIMENTS_QUALITY_RUN_H

#include "experiments/quality/file.h"
#include "experiments/quality/swaps.h"

typedef struct quality_job {
  const data_llama *model;
  const quality_windows *windows;
  const swap_list *swaps;
  const quality_record *about; /* model, data, task, n, ... margin: what all runs share */
  const char *path;            /* of the file, to which the runs are added */
  double limit;                /* seconds of a pass */
} quality_job;

/* What defines a run, and its key; to be freed. */
attn_status quality_describe(const quality_job *, int64_t swap, quality_record *out);

/* Runs that the file has, and that ended well, are not repeated. All others are one pass; if that does not end well,
 * each has its own. What a run's failure says is in its row; the result is about the file and the machine. The
 * process must have one thread. */
attn_status quality_run(const quality_job *, quality_set *out);

#endif
