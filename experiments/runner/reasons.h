/* reasons.h - why runs of a sweep were not measured. */
#ifndef EXPERIMENTS_RUNNER_REASONS_H
#define EXPERIMENTS_RUNNER_REASONS_H

#include <stdio.h>

#include "experiments/results/set.h"

typedef struct reasons_counts {
  size_t runs, unsupported, skipped;
  size_t measured; /* of variants */
  size_t idle;     /* runs of variants, where every one is unsupported or skipped; else 0 */
} reasons_counts;

reasons_counts reasons_count(const result_set *);

/* At most `most` reasons, a line each after the name of the program: first those of runs that failed, then
 * the others. */
void reasons_print(FILE *, const char *program, const result_set *, size_t most);

#endif
