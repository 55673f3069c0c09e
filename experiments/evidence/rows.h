/* rows.h - goes through the sampled rows of a run, and reduces what is found on them to one verdict. */
#ifndef EXPERIMENTS_EVIDENCE_ROWS_H
#define EXPERIMENTS_EVIDENCE_ROWS_H

#include "experiments/evidence/row.h"
#include "experiments/results/bound.h"

/* What a check found on one row: measured against value; why: it cannot be certified. */
typedef struct outcome {
  double measured, value;
  const char *why;
} outcome;

/* Keeps the worse of two findings: a violation before the uncertifiable before the larger ratio. */
void outcome_worsen(outcome *worst, outcome);
/* Turns the worst finding into a HARD verdict. Returns ATTN_OK. */
attn_status outcome_settle(const outcome *worst, result_bound *);
/* The component of a row with the largest |a - b| / bound. */
outcome outcome_components(const double *a, const double *b, const double *bound, int64_t d);

/* One row of the sample with everything about it. space->q and space->given (the run's output) are set. */
typedef struct row_case {
  const evidence *e;
  const head_data *head;
  const sample_row *row;
  const double *p, *o; /* exact, all keys */
  int64_t keys;
  row_space *space;
} row_case;

/* Judges rows of the sample in parallel, evenly spaced ones if all would exceed the budget of a check (2^24
 * multiply-adds; cost_per_row of them each), and settles the worst finding. */
attn_status rows_check(const evidence *, double cost_per_row, outcome (*judge)(const row_case *),
                       result_bound *);

/* Multiply-adds of a pass over the keys that one row sees. */
double row_cost(const evidence *);

#endif
