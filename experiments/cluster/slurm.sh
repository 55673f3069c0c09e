#!/bin/sh
# slurm.sh - a sweep as a Slurm array, one shard a task:
#   sbatch --array=0-7 experiments/cluster/slurm.sh CONFIG.yaml NAME.h5 [RUN-OPTION...]
# then, when all are done:  attnlab merge -o NAME.h5 NAME.*-of-8.jsonl
# A task that meets its time limit, or is preempted, stops with what it has and is queued again.
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -eu

attnlab=${ATTNLAB:-build/release/experiments/attnlab}
config=$1 output=$2
shift 2
code=0
srun --ntasks=1 "$attnlab" run "$config" -o "$output" --shard auto "$@" || code=$?
if [ "$code" -eq 75 ]; then # EX_TEMPFAIL: interrupted; the same command resumes it
  scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
fi
exit "$code"
