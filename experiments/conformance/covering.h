/* covering.h - few rows in which the levels of factors meet: every pair of levels of any two factors, and
 * every triple of some, stands together in some row. Kuhn, Kacker and Lei 2010, NIST SP 800-142: few faults
 * need more than two or three levels to meet. */
#ifndef EXPERIMENTS_CONFORMANCE_COVERING_H
#define EXPERIMENTS_CONFORMANCE_COVERING_H

#include "attn_variant.h"

enum { COVERING_FACTORS = 24 };

typedef struct covering_plan {
  int factors;
  int levels[COVERING_FACTORS]; /* of each factor, from 1 */
  int triples;                  /* every triple of this many first factors is covered, too */
  /* May such a row be? Levels that are still open are -1: true if some completion is allowed. */
  bool (*allowed)(const void *context, const int *row);
  const void *context;
} covering_plan;

/* rows [count][factors], to be freed. Pairs come first, so that the beginning is worth the most. What no
 * allowed row has is left out. The same seed gives the same rows. ENOMEM. */
attn_status covering_make(const covering_plan *, uint64_t seed, int **rows, int64_t *count);

#endif
