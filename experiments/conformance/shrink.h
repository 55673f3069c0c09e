/* shrink.h - smaller problems to try where one has failed. */
#ifndef EXPERIMENTS_CONFORMANCE_SHRINK_H
#define EXPERIMENTS_CONFORMANCE_SHRINK_H

#include "experiments/conformance/drawn_problem.h"

/* The smallest problem that still fails, of those that a step apart from the last one lead to: each member
 * plain, sizes one, or less by a power of two or by less than 8. fails() tells whether a problem still fails,
 * and is called while more() returns true. */
typedef struct shrinking {
  bool (*fails)(void *context, const problem *);
  bool (*more)(void *context);
  void *context;
} shrinking;
void problem_shrink(const shrinking *, problem *);

#endif
