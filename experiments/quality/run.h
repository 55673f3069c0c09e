/* run.h - evaluates the swaps of a model on one set of windows, in a process of its own: a variant that crashes inside a
 * model is a row. */
#ifndef EXPERIMENTS_QUALITY_RUN_H
#define EXPERIMENTS_QUALITY_RUN_H

#include "experiments/grid/spec_files.h"
#include "experiments/quality/file.h"
#include "experiments/quality/swaps.h"

typedef void quality_note(void *to, const char *line);

typedef struct quality_job {
  const data_llama *model;
  const quality_windows *windows;
  const swap_list *swaps;
  const quality_record *about; /* model, data, task, build, ... margin: what all runs share */
  spec_files *files;           /* that the variants are made from */
  const char *path;            /* of the file, to which the runs are added */
  double limit;                /* seconds of a pass */
  bool keep_stale;    /* runs of the file that were made by another build or plug-in are not repeated */
  quality_note *note; /* told how many are, in a line; NULL: nobody */
  void *to;
} quality_job;

/* What defines a run, its key, and what it is made from; to be freed. */
attn_status quality_describe(const quality_job *, int64_t swap, quality_record *out);

/* Runs that the file has, that ended well and that still stand (identity.h) are not repeated. The others are passes of
 * several runs, as many as take about a minute, but at least one: when a pass is over, its runs are in the file. If
 * one does not end well, each of its runs has its own. What a run's failure says is in its row; the result is about the file and the machine. The
 * process must have one thread. */
attn_status quality_run(const quality_job *, quality_set *out);

#endif
