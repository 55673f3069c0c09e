/* grid_runs.h - what a block of the grid consists of; internal to the grid. */
#ifndef EXPERIMENTS_GRID_GRID_RUNS_H
#define EXPERIMENTS_GRID_GRID_RUNS_H

#include "experiments/grid/grid.h"

/* Adds the runs of a configuration that are not excluded, to a block that has none but is otherwise complete.
 * ENOMEM. */
attn_status grid_add_runs(const config *, grid_block *);

void grid_run_free(grid_run *);

/* Fills what the variants say beforehand, and the blocks' costs. One that crashes, or does not come back, is
 * unknown. ENOMEM, EFOREIGN. */
attn_status grid_estimate(grid *);

/* Moves runs that are refused to the grid's refusals. A block of baselines alone goes, too. ENOMEM; EINVAL:
 * nothing is left. */
attn_status grid_refuse(grid *);

#endif
