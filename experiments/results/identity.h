/* identity.h - what the numbers of a run rest on besides its key, of sweeps and of evaluations alike; and
 * whether two rows of one key agree. */
#ifndef EXPERIMENTS_RESULTS_IDENTITY_H
#define EXPERIMENTS_RESULTS_IDENTITY_H

#include "experiments/results/row.h"

/* SHA-256 of each as text; "": there is none, or it is not known. */
typedef struct identity {
  const char *dataset, *plugin, *files; /* files: that the spec, the score and the mask name */
  const char *build;                    /* of the program */
} identity;

/* Do numbers that were made from the one still hold where the other is at hand? keep_stale: by other builds
 * and plug-ins, too. A file that cannot be read any more changes nothing. */
bool identity_stands(const identity *made, const identity *now, bool keep_stale);

/* A row, where it is from, and what it was made from. */
typedef struct identity_row {
  const char *file;
  const void *record; /* of the columns */
  const result_bound *bounds;
  int bounds_count;
  identity made;
} identity_row;

/* Two rows of a key that ended well: EINVAL names the files, the key, and the first number that differs
 * although its column does not vary. Cells of properties, which are of all runs of a setting, and bounds that
 * one of the two was not held against, are not compared. */
attn_status identity_agree(const result_column *, const char *key, const identity_row *,
                           const identity_row *);

#endif
