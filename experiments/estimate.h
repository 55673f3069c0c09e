/* estimate.h - what a sweep would take: attnlab run --dry-run. */
#ifndef EXPERIMENTS_ESTIMATE_H
#define EXPERIMENTS_ESTIMATE_H

#include "grid.h"

/* Prints a line per run to stdout (key, "planned" or why not, multiply-adds, bytes of work memory, seconds of one
 * execution, seconds in the sweep; nan: not known) and, unless quiet, the sums to stderr. The seconds come from the
 * variants' cost formulas and the machine's calibration (calibration.h), which is made if there is none. */
attn_status estimate_print(const grid *, const config *, char *const *plugins, bool quiet);

#endif
