/* shard.h - which part of a sweep a process runs. */
#ifndef EXPERIMENTS_GRID_SHARD_H
#define EXPERIMENTS_GRID_SHARD_H

#include "attn.h"

/* Reads "I/N" (0 <= I < N) or "auto", which asks the environment, first found first:
 *   a Slurm array: (SLURM_ARRAY_TASK_ID - _MIN) / _STEP of _COUNT, and where srun started more than one task
 *   (SLURM_STEP_NUM_TASKS), its SLURM_PROCID as the faster index; srun alone likewise;
 *   Open MPI: OMPI_COMM_WORLD_RANK, _SIZE;   MPICH and others: PMI_RANK, PMI_SIZE;   else 0/1.
 * look: getenv, or a stand-in. EINVAL: the text, or a variable that names it. */
attn_status shard_parse(const char *text, char *(*look)(const char *name), int64_t *index, int64_t *count);

#endif
