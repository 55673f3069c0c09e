/* worker_loop.h - the process that runs one block, as a child of pool.h.
 *
 * The worker reads one job (job.h) with a token from standard input to its end and writes messages
 * (message.h) to descriptor WORKER_OUTPUT, each with its time "at" by the monotonic clock:
 *   {"starting": KEY, "beside": BYTES}    the run that is being worked on from now on; what is kept for
 *   others
 *   {"resting": true}      none is
 *   {"row": {...}}         a finished run (results/row_json.h)
 *   {STATUS: MESSAGE}      no run of the block can start; all get this status ("failed", "skipped", ...)
 *   {"done": true}         the last line */
#ifndef EXPERIMENTS_RUNNER_WORKER_LOOP_H
#define EXPERIMENTS_RUNNER_WORKER_LOOP_H

#include "attn.h"

enum { WORKER_OUTPUT = 3 };

/* Moves WORKER_OUTPUT to a descriptor that nobody hits by chance: before plug-ins are loaded. */
void worker_open(void);

/* All that a worker does. EINVAL: it was not started as a worker, or its job is malformed. */
attn_status worker_run(void);

#endif
