/* measure.h - one run inside a worker: what it would cost, is its output right, and only then how long it
 * takes. */
#ifndef EXPERIMENTS_RUNNER_MEASURE_H
#define EXPERIMENTS_RUNNER_MEASURE_H

#include "experiments/instruments/counters.h"
#include "data/data.h"
#include "experiments/instruments/cold_cache.h"
#include "experiments/evidence/judged_run.h"
#include "experiments/instruments/guard.h"
#include "experiments/runner/settled_properties.h"
#include "experiments/runner/job.h"
#include "experiments/instruments/memory.h"
#include "experiments/runner/recheck.h"

/* What the runs of a block share. */
typedef struct measure_block {
  const job *job;
  attn_problem problem;               /* resolved */
  data_target *target;                /* what the problem's score and mask point to */
  guard q, k, v;                      /* read-only */
  data_array gates[ATTN_EXTRA_KINDS]; /* what extra points to */
  attn_extra extra[ATTN_EXTRA_KINDS];
  int64_t extras;
  char nonfinite[DATA_PLACE]; /* the first element of these that is NaN or infinite; "": none is */
  exact_rows *exact;
  struct block_cache *cache;
  properties_found found; /* in this block */
  counters counters;
  evictor evictor; /* where the runs of the block have a cold cache; else zero */
  guard o;         /* the output of the run at hand */
  /* What is judged: the problem on these inputs, or, where tensors are stored in 16 bits, that of fp32 on the
   * same numbers, of which the output is rounded once. */
  attn_dtype as; /* how tensors are stored */
  attn_problem judged;
  void *judged_q, *judged_k, *judged_v, *judged_o;
  double resident; /* bytes of the process before the first run */
  size_t kept;     /* bytes of plans that stay between turns */
} measure_block;

typedef struct measured_run {
  measure_block *block;
  const grid_run *run;
  result_row row;
  memory_counter memory;
  bool timed;          /* there is something left to time */
  attn_plan *plan;     /* while it is verified; during a turn, and after it where there is room */
  size_t kept;         /* of block->kept */
  guard work;          /* while it is executed */
  const char *damage;  /* what it wrote to beside its own memory; NULL: nothing */
  double first;        /* seconds of the verified execution */
  counter_sample turn; /* at its beginning, or behind the last pause */
  counter_sum counted; /* over the executions so far, with the repetitions of warm-up and verification */
  int64_t executions;  /* that were counted */
  recheck check;
  int64_t number;       /* of the last execution */
  int64_t checked;      /* the last whose output was checked */
  int64_t until_check;  /* samples */
  double began, paused; /* time at the turn's beginning, seconds of it spent on checks */
  bool seen[2];         /* output of inputs as they are, and mirrored, in this turn */
  char fault[200];      /* what was wrong with an execution that was timed; "": nothing */
} measured_run;

/* Bytes of Q, K, V and O. EINVAL if that overflows. */
attn_status measure_tensor_bytes(const attn_problem *, size_t *total, size_t *output);

/* What a failure makes of a run: unsupported, out of memory or failed. */
run_status measure_outcome(attn_status);

/* Makes Q, K, V, the exact rows and the output buffer. The block must be zero except its job. */
attn_status measure_block_open(measure_block *);
void measure_block_close(measure_block *);

/* Are tensors stored in another type than they are computed with in? */
bool measure_block_stored(const measure_block *);
/* Is there a NaN in the output? */
bool measure_block_has_nan(const measure_block *);

/* Fills the row up to its verdict; r must be zero except block and run. Everything that keeps the run from a
 * verdict is its status and message; a failure is returned only if there is no memory for the row itself. */
attn_status measure_verify(measured_run *);
/* Fills select_share: of a run that selects keys, and not while it attends to them. */
attn_status measure_select(measured_run *);
/* Its second execution, by a plan that nothing was executed with, so that turns begin as they would have. */
attn_status measure_watch(measured_run *);

/* How it is planned. */
attn_options measure_options(const measured_run *);

/* Ends the run with a status and a message in place of a result. */
void measure_conclude(result_row *, run_status, const char *format, ...);

/* Work memory for executions, and back. What the run wrote to beside its own is in r->damage then. */
attn_status measure_open(measured_run *);
void measure_close(measured_run *);

/* For timing_subject: a turn has a plan and work memory; between samples the output is checked and the inputs
 * change; caches are emptied; an execution. */
attn_status measure_begin(void *measured_run);
attn_status measure_check(void *measured_run);
void measure_prepare(void *measured_run);
attn_status measure_execute(void *measured_run);
void measure_end(void *measured_run);

/* Within a turn: an execution that is not timed. */
void measure_challenge(measured_run *, bool mirrored);

/* Moves the samples into the row and summarises them. */
attn_status measure_finish(measured_run *, timing_subject *, double drift_ratio);
void measured_run_free(measured_run *);

#endif
