/* inputs.h - the numbers of a problem: tensors, biases, sinks, masks, lengths. */
#ifndef EXPERIMENTS_CONFORMANCE_INPUTS_H
#define EXPERIMENTS_CONFORMANCE_INPUTS_H

#include "experiments/conformance/drawn_problem.h"
#include "experiments/properties/property.h"

enum { INPUTS_DOCUMENTS = 7 };

typedef struct problem_inputs {
  region memory;          /* of all that follows */
  trial_inputs in, other; /* other: of an earlier call, with the same score and mask */
  double *relative, *sink;
  void *dense;
  int64_t offsets[INPUTS_DOCUMENTS + 1];
  int64_t keys; /* for the graph */
  attn_pattern graph;
} problem_inputs;

/* Keys and values that do not exist are NaN. It must stay where it is: the problem points into it. Its memory
 * is to be freed, also after ENOMEM. */
attn_status problem_inputs_make(const problem *, problem_inputs *);
/* What the values are multiplied by. */
double problem_inputs_gain(const problem *);

#endif
