/* model.h - a results file as groups of lines of cells, and what is estimated of them.
 *
 * A cell holds the runs of one line at one length n, over seeds; a line, those of one variant with its
 * parameters; a group, those that compare with each other (setting_group_compare). */
#ifndef EXPERIMENTS_ANALYSIS_MODEL_H
#define EXPERIMENTS_ANALYSIS_MODEL_H

#include "experiments/analysis/fit.h"
#include "experiments/analysis/setting.h"
#include "experiments/results/set.h"

typedef struct report_cell {
  size_t first, count; /* runs: model->rows[first ... first + count - 1] */
  int64_t n;
  size_t ok;
  run_status status;             /* of the first run, where none is ok */
  bool judged, violated;         /* a bound was checked, so it is no null baseline; one does not hold */
  bool front_time, front_memory; /* nothing as accurate is faster, or smaller */
  unsigned doubts;               /* report_doubts of the runs, or-ed */
  report_interval error;   /* median over seeds; from the least end of a run's interval to the largest */
  report_interval time;    /* seconds; likewise */
  report_interval memory;  /* bytes; likewise */
  report_interval speedup; /* over the group's exact line, 95 % */
} report_cell;

typedef struct report_line {
  size_t setting; /* model->settings */
  report_cell *cells;
  size_t count; /* of cells, ascending in n */
  report_fit time, memory;
  report_crossing crossing;
} report_line;

typedef struct report_length {
  int64_t n;
  double process; /* bytes: peak resident memory of the largest run, tensors and checks included */
} report_length;

typedef struct report_group {
  report_line *lines;
  size_t count;
  report_length *lengths; /* ascending */
  size_t lengths_count;
  report_fit process;
  size_t exact; /* the line that others are compared with; count if there is none */
} report_group;

typedef struct report_model {
  const result_set *set;
  const result_row **rows; /* by group, line, n and seed */
  size_t *setting_of;      /* of each of rows */
  setting *settings;       /* distinct, in order */
  char **labels;
  size_t settings_count;
  report_cell *cells;
  report_line *lines;
  report_length *lengths;
  report_group *groups;
  size_t groups_count;
} report_model;

/* Sorts a set's runs and estimates what follows from them. The set must outlive the model. ENOMEM. */
attn_status report_model_make(const result_set *, report_model *out);
void report_model_free(report_model *);

const report_cell *report_cell_at(const report_line *, int64_t n); /* NULL: no run of that length */

#endif
