/* doubts.h - reasons to doubt the numbers of a run or of a session. */
#ifndef EXPERIMENTS_ANALYSIS_DOUBTS_H
#define EXPERIMENTS_ANALYSIS_DOUBTS_H

#include "experiments/results/set.h"

/* Why a run's numbers may mislead: a set of bits, bit i of doubt_list[i]. */
typedef struct doubt {
  const char *name, *text;
} doubt;
extern const doubt doubt_list[]; /* ends with a NULL name */
unsigned doubts_of(const result_row *);

/* Do that many threads of our own, beside the load average before they started, take turns on the
 * processors? */
bool doubts_of_load(double load, double own, double cores);

/* Texts that warn of the sessions: governor, frequency boost, other builds, ... A new array, NULL without
 * memory. */
json_t *doubts_of_sessions(const result_set *);

#endif
