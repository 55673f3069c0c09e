/* passes.h - evaluates the swaps of a model on one set of windows, in processes apart: a variant that crashes
 * inside a model is a row. */
#ifndef EXPERIMENTS_QUALITY_PASSES_H
#define EXPERIMENTS_QUALITY_PASSES_H

#include "experiments/grid/spec_files.h"
#include "experiments/quality/evaluation_store.h"
#include "experiments/quality/swaps.h"

typedef struct quality_job {
  const data_llama *model;
  const quality_windows *windows;
  const swap_list *swaps;
  const quality_record *about; /* model, data, task, build, ... margin: what all runs share */
  spec_files *files;           /* that the variants are made from */
  const quality_store *store;  /* to which the runs are added */
  double limit;                /* seconds of a pass */
  bool keep_stale; /* runs of the store that were made by another build or plug-in are not repeated */
} quality_job;

/* What defines a run, its key, and what it is made from; to be freed. */
attn_status quality_describe(const quality_job *, int64_t swap, quality_record *out);

/* Runs that the store has, that ended well and that still stand (identity.h) are not repeated. The others
 * are passes of several runs, as many as take about a minute, but at least one: when a pass is over, its
 * runs are in the journal. If one does not end well, each of its runs has its own. What a run's failure says
 * is in its row; the result is about the file and the machine. The process must have one thread. */
attn_status quality_run(const quality_job *);

#endif
