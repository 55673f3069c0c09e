/* check_plan.h - the verdicts on one output of a plan, as cells of a row. */
#ifndef EXPERIMENTS_VERIFICATION_CHECK_PLAN_H
#define EXPERIMENTS_VERIFICATION_CHECK_PLAN_H

#include "experiments/results/row.h"

typedef struct check_request {
  uint64_t seed;    /* as in attn_check_options, as are the rows */
  int64_t rows;     /* -1: a sample for checks alone, no errors */
  bool properties;  /* after the checks */
  const char *only; /* the name of the one check that is asked; NULL: all are */
  void (*told)(void *to,
               const result_bound *); /* is told of each cell as soon as it has its verdict; or NULL */
  void *to;
} check_request;

/* Appends the cells of all checks to a row that result_row_init made, then those of properties, and fills its
 * errors and verdicts. Otherwise as attn_check (attn_check.h). */
attn_status check_plan(const attn_plan *, const attn_tensors *, const check_request *, result_row *);

#endif
