/* reasons.h - why a sweep measured nothing. */
#ifndef EXPERIMENTS_RUNNER_REASONS_H
#define EXPERIMENTS_RUNNER_REASONS_H

#include <stdio.h>

#include "experiments/results/set.h"

/* Where there are runs of variants and every one is unsupported or skipped, prints a line per reason, after the
 * name of a program, and returns their number; else 0. */
size_t reasons_print(FILE *, const char *program, const result_set *);

#endif
