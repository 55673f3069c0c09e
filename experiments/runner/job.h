/* job.h - a worker's job, on its standard input: a block with the runs still to do, and how to run them. */
#ifndef EXPERIMENTS_RUNNER_JOB_H
#define EXPERIMENTS_RUNNER_JOB_H

#include <jansson.h>

#include "experiments/grid/grid.h"

typedef struct job {
  grid_block block;
  timing_options timing;
  double budget_time;    /* seconds of a run */
  int64_t budget_memory; /* bytes of a run, Q, K and V among them */
  json_t *settled;       /* properties_found_json of what is known already; NULL: judge none */
} job;

/* A new reference; NULL (recorded) without memory. */
json_t *job_to_json(const job *);
/* EINVAL names the member that is wrong. Release the block with grid_block_free, settled with json_decref. */
attn_status job_from_json(const json_t *, job *);

#endif
