/* worker.h - the process that runs one block, as a child of pool.h.
 *
 * The worker reads one job (job.h) from standard input to its end and writes lines to descriptor
 * WORKER_OUTPUT:
 *   {"starting": KEY}      the run that is being worked on from now on
 *   {"resting": true}      none is
 *   {"row": {...}}         a finished run (results/row_json.h)
 *   {STATUS: MESSAGE}      no run of the block can start; all get this status ("failed", "skipped", ...)
 *   {"done": true}         the last line */
#ifndef EXPERIMENTS_RUNNER_WORKER_H
#define EXPERIMENTS_RUNNER_WORKER_H

#include "attn.h"

enum { WORKER_OUTPUT = 3 };

/* All that a worker does. EINVAL: it was not started as a worker, or its job is malformed. */
attn_status worker_run(void);

#endif
