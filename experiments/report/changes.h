/* changes.h - what attnlab compare prints: where two results files come from, which runs pair, and what
 * changed. */
#ifndef EXPERIMENTS_REPORT_CHANGES_H
#define EXPERIMENTS_REPORT_CHANGES_H

#include <stdio.h>

#include "experiments/analysis/change.h"

typedef struct changes_file {
  const char *path;
  const result_set *set;
} changes_file;

typedef struct changes {
  changes_file a, b;
  double limit; /* change_make */
  const result_pairs *pairs;
  const results_change *change;
} changes;

enum { CHANGES_SHOWN = 10 }; /* lines of each list, unless all are asked for */

/* As text; EFOREIGN if the stream fails, ENOMEM. */
attn_status changes_print(FILE *, const changes *, bool all);
/* As one JSON object (changes_json.c names the members). */
attn_status changes_print_json(FILE *, const changes *);

/* Where the files come from: {"differ": [[name, a, b]], "same": [name]}; of several sessions the values
 * with " | " between them. NULL: no memory. */
json_t *changes_provenance(const changes *);

/* Of the runs that were timed: the least and the largest drift_ratio; NaN where there are none. */
typedef struct changes_drift {
  double least, most;
} changes_drift;
changes_drift changes_drift_of(const result_set *);

#endif
