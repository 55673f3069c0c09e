/* spawn.h - starting a worker, and making an end of it and of all that it started. */
#ifndef EXPERIMENTS_RUNNER_SPAWN_H
#define EXPERIMENTS_RUNNER_SPAWN_H

#include "experiments/instruments/processes.h"
#include "experiments/runner/pool.h"

typedef struct spawned {
  process_tree tree;
  char mark[64];
  int input, output; /* of this process: write its job to one, read its lines from the other */
} spawned;

/* `attnlab worker --plugin a --plugin b`, with its job on 0 and its lines on WORKER_OUTPUT, in a new process
 * group, so that an interrupt from the keyboard reaches the parent alone. EFOREIGN. */
attn_status spawn_worker(const worker_pool *, const char *token, spawned *);

/* Has it ended? Then reading its lines no longer waits for others that hold the pipe. */
bool spawn_ended(const spawned *);

/* Kills it and what it started, and waits for it. */
void spawn_end(spawned *, int *wait_status);

#endif
