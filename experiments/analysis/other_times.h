/* other_times.h - times of other programs or machines, beside the errors of a results file. */
#ifndef EXPERIMENTS_ANALYSIS_OTHER_TIMES_H
#define EXPERIMENTS_ANALYSIS_OTHER_TIMES_H

#include "experiments/analysis/model.h"

typedef struct other_time {
  size_t number;         /* of the line in the file */
  const char *texts[3];  /* setting (a spec), device, source ("": not said), as of names_keep */
  double seconds;        /* above 0 */
  int64_t axis[AXES];    /* below 0: not said */
  const char *unmatched; /* why it is of no run; NULL: it is of one */
} other_time;

typedef struct other_times {
  other_time *items; /* to be freed */
  size_t count;
} other_times;

/* Reads comma-separated values (RFC 4180, each on one line) below a line of names: setting, device, n and
 * milliseconds; perhaps source, and axes of a grid, such as d or causal, in which a run must agree where they
 * are not empty. EINVAL: malformed, with file and line; EFOREIGN, ENOMEM. */
attn_status other_times_read(const char *path, other_times *out);

/* [[first run of a cell that a time is of, device, seconds, source]]; sets `unmatched`. NULL: no memory. */
json_t *other_times_json(const other_times *, const results_model *);

#endif
