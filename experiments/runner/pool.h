/* pool.h - the parent's side of the workers (worker_loop.h): the processes that run a block, one after
 * another. */
#ifndef EXPERIMENTS_RUNNER_POOL_H
#define EXPERIMENTS_RUNNER_POOL_H

#include <signal.h>

#include "experiments/runner/job.h"

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
attn_status pool_run_block(const worker_pool *, const job *);

#endif
