/* model.h - a results file as groups of lines of cells, and what is estimated of them.
 *
 * A cell holds the runs of one line at one length n, over seeds; a line, those of one variant with its
 * parameters, and one file where the set is of several; a group, those that compare with each other
 * (setting_group_compare). */
#ifndef EXPERIMENTS_ANALYSIS_MODEL_H
#define EXPERIMENTS_ANALYSIS_MODEL_H

#include "experiments/analysis/fit.h"
#include "experiments/analysis/setting.h"
#include "experiments/results/set.h"
#include "experiments/support/region.h"

typedef struct model_cell {
  size_t first, count; /* its runs are model->rows[first ... first + count - 1] */
  int64_t n;
  size_t ok;
  run_status status;     /* of the first run, if no run is ok */
  bool judged, violated; /* every run was checked, so the line is no null baseline; a bound does not hold */
  bool unchecked;        /* none of a run's checks applied */
  /* The baseline of least error that looks at no key, "zeros" or "the mean of V", if it is as near. NULL: the
   * cell is nearer, was not judged, or is exact. */
  const char *no_better;
  /* Judged, not violated, nearer than such baselines, every run ended well and was timed: may be on a
   * front. */
  bool offered;
  bool front_time, front_memory, front_keys; /* nothing offered beats its error and time, memory or keys */
  unsigned doubts;                           /* doubts_of of the runs, or-ed */
  fit_interval error;   /* median over seeds; from the least end of a run's interval to the largest */
  fit_interval time;    /* seconds; likewise */
  fit_interval memory;  /* bytes; likewise */
  fit_interval speedup; /* over the group's exact line, 95 % */
  /* Medians over seeds, NaN where no keys are kept or selected: keys of a row, the exact mass that it leaves
   * out, and how much less as many keys could leave out. */
  double keys, left_out, regret;
  double ceiling; /* the largest certified upper end of a run's error; NaN: a run has none */
} model_cell;

typedef struct model_line {
  size_t setting; /* model->settings */
  model_cell *cells;
  size_t count; /* of cells, ascending in n */
  size_t exact; /* the line of the group, and of the same file, that it is compared with; the group's count:
                   there is none */
  fit_power time, memory;
  fit_crossing crossing;
} model_line;

typedef struct model_length {
  int64_t n;
  double process; /* bytes: peak resident memory of the largest run, with tensors and checks */
} model_length;

typedef struct model_group {
  model_line *lines;
  size_t count;
  model_length *lengths; /* ascending */
  size_t lengths_count;
  fit_power process;
} model_group;

typedef struct results_model {
  region memory; /* of all that follows */
  const result_set *set;
  const result_row **rows; /* by group, line, n and seed */
  size_t *setting_of;      /* the setting of each of rows */
  setting *settings;       /* distinct, in order */
  const char **labels;     /* of each setting, with its parameters */
  char **methods;          /* setting_methods */
  bool machine; /* groups have one instruction set and number of threads, since a file has several */
  size_t settings_count;
  model_cell *cells;
  model_line *lines;
  model_length *lengths;
  model_group *groups;
  size_t groups_count;
} results_model;

/* Sorts a set's runs and estimates what follows from them. The set must outlive the model. ENOMEM. */
attn_status model_make(const result_set *, results_model *out);
void model_free(results_model *);

const model_cell *model_cell_at(const model_line *, int64_t n); /* NULL: no run of that length */

#endif
