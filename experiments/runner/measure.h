/* measure.h - one run inside a worker: what it would cost, is its output right, and only then how long it
 * takes. */
#ifndef EXPERIMENTS_RUNNER_MEASURE_H
#define EXPERIMENTS_RUNNER_MEASURE_H

#include "experiments/instruments/counters.h"
#include "data/data.h"
#include "experiments/instruments/evict.h"
#include "experiments/evidence/run.h"
#include "experiments/instruments/guard.h"
#include "experiments/runner/job.h"
#include "experiments/instruments/memory.h"

/* What the runs of a block share. */
typedef struct measure_block {
  const job *job;
  attn_problem problem; /* resolved */
  guard q, k, v;        /* read-only */
  exact_rows *exact;
  struct block_cache *cache;
  counters counters;
  evictor evictor; /* where the runs of the block have a cold cache; else zero */
  guard o;         /* the output of the run at hand */
} measure_block;

typedef struct measured_run {
  measure_block *block;
  const grid_run *run;
  result_row row;
  memory_counter memory;
  attn_plan *plan;     /* while there is something left to time */
  guard work;          /* during a turn */
  const char *damage;  /* what it wrote to beside its own memory; NULL: nothing */
  double first;        /* seconds of the verified execution */
  counter_sample turn; /* at its beginning, or behind the last eviction */
  counter_sum counted; /* over the executions so far, with the repetitions of warm-up and verification */
  int64_t executions;
} measured_run;

/* Bytes of Q, K, V and O. EINVAL if that overflows. */
attn_status measure_tensor_bytes(const attn_problem *, size_t *total, size_t *output);

/* What a failure makes of a run: unsupported, out of memory or failed. */
run_status measure_outcome(attn_status);

/* Makes Q, K, V, the exact rows and the output buffer. The block must be zero but for its job. */
attn_status measure_block_open(measure_block *);
void measure_block_close(measure_block *);

/* Fills the output with NaN; is there any in it? */
void measure_block_poison(const measure_block *);
bool measure_block_has_nan(const measure_block *);

/* Fills the row up to its verdict; r must be zero but for block and run. Everything that keeps the run from a
 * verdict is its status and message; a failure is returned only if there is no memory for the row itself.
 * After it, r->plan is set iff the run shall be timed. */
attn_status measure_verify(measured_run *);

/* For timing_subject: work memory for a turn, emptied caches, an execution. */
attn_status measure_begin(void *measured_run);
void measure_prepare(void *measured_run);
attn_status measure_execute(void *measured_run);
void measure_end(void *measured_run);

/* Moves the samples into the row and summarises them. */
attn_status measure_finish(measured_run *, timing_subject *, double drift_ratio);
void measured_run_free(measured_run *);

#endif
