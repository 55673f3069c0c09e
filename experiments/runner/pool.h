/* pool.h - the two ends of a worker: the process that runs a block, and its parent's side of the pipe.
 *
 * The worker reads one job (job.h) from standard input to its end and writes lines to descriptor
 * WORKER_OUTPUT:
 *   {"starting": KEY}      the run that is being worked on from now on
 *   {"resting": true}      none is
 *   {"row": {...}}         a finished run (results/row_json.h)
 *   {STATUS: MESSAGE}      no run of the block can start; all get this status ("failed", "skipped", ...)
 *   {"done": true}         the last line */
#ifndef EXPERIMENTS_RUNNER_POOL_H
#define EXPERIMENTS_RUNNER_POOL_H

#include <signal.h>

#include "experiments/runner/job.h"

enum { WORKER_OUTPUT = 3 };

typedef struct worker_pool {
  const char *program;                      /* absolute path of attnlab */
  const char *stamp;                        /* of its files (provenance.h) */
  char *const *plugins;                     /* NULL-terminated paths, loaded by each worker */
  const volatile sig_atomic_t *interrupted; /* nonzero: stop as soon as possible */
  int messages;                             /* descriptor for what the workers print; 0: they share ours */
  /* Called for every finished run; a failure ends the block. */
  attn_status (*row)(void *context, const grid_run *, result_row *);
  void (*tick)(void *context, const grid_run *); /* called several times a second; the run at work, or NULL */
  void *context;
} worker_pool;

/* Runs a block to its end, in as many workers as it takes: a run in which a worker dies, or which exceeds its
 * time or memory, gets that status, and another worker goes on behind it. Each run of the job is reported
 * exactly once, unless interrupted. EFOREIGN: no worker can be started, or only one of another build, because
 * the program was replaced. */
attn_status worker_run_block(const worker_pool *, const job *);

#endif
