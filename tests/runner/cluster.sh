#!/bin/sh
# cluster.sh TOOL ATTNLAB - tries experiments/cluster/ with the tool for real (slurm: with stand-ins that set the
# environment as Slurm does): more shards than blocks of runs, which together must make the rows of the whole.
set -eu

tool=$1
ATTNLAB=$2
export ATTNLAB
cluster=$(cd "$(dirname "$0")/../../experiments/cluster" && pwd)
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here"
cat >x.yaml <<'YAML'
schema: 1
grid: {n: [16, 24, 32, 48], heads: 1, d: 8}
variants: [full, tiled]
datasets: gaussian
threads: 1
timing: {min_time: 0.001, max_time: 0.01, warmup: 0.0005, samples: 4}
YAML

slurm() {
  mkdir bin
  # srun gives each task its number; the batch script has that of its first task.
  cat >bin/srun <<'SH'
#!/bin/sh
shift
SLURM_STEP_NUM_TASKS=1 exec "$@"
SH
  printf '#!/bin/sh\necho "$@" >requeued\n' >bin/scontrol
  chmod +x bin/srun bin/scontrol
  export SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_STEP=1 SLURM_ARRAY_TASK_COUNT=5 \
    SLURM_PROCID=0 SLURM_NTASKS=1
  for SLURM_ARRAY_TASK_ID in 0 1 2 3 4; do
    export SLURM_ARRAY_TASK_ID
    PATH="$here/bin:$PATH" "$cluster/slurm.sh" x.yaml x.h5 --quiet
  done
  [ ! -e requeued ]
  # A task that finds its journal in use ends with 75 as one that was stopped does, and is queued again.
  ATTNLAB="$here/bin/busy"
  printf '#!/bin/sh\nexit 75\n' >"$ATTNLAB"
  chmod +x "$ATTNLAB"
  code=0
  PATH="$here/bin:$PATH" ATTNLAB=$ATTNLAB "$cluster/slurm.sh" x.yaml x.h5 || code=$?
  [ "$code" -eq 75 ] && [ "$(cat requeued)" = "requeue 7_4" ]
  ATTNLAB=$attnlab
  "$attnlab" merge -o x.h5 x.*-of-5.jsonl
}

attnlab=$ATTNLAB
case "$tool" in
  slurm) slurm ;;
  parallel) "$cluster/parallel.sh" 5 x.yaml x.h5 ;;
  mpirun)
    # Root is who tests in a container.
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
      "$cluster/mpirun.sh" 5 x.yaml x.h5 --map-by :OVERSUBSCRIBE ;;
  jube)
    mkdir -p experiments/cluster
    sed -e "s|build/release/experiments/attnlab|$attnlab|; s|experiments/configs/default.yaml|x.yaml|" \
      -e 's|results/jube.h5|x.h5|; s|"4"|"5"|; s|"0,1,2,3"|"0,1,2,3,4"|' "$cluster/jube.yaml" >experiments/cluster/jube.yaml
    jube run experiments/cluster/jube.yaml
    "$attnlab" merge -o x.h5 x.*-of-5.jsonl ;;
  *) echo "cluster.sh: unknown tool '$tool'" >&2; exit 2 ;;
esac
"$attnlab" run x.yaml -o whole.h5 --quiet
rows() { "$attnlab" export --csv "$1" | wc -l; }
[ "$(rows x.h5)" -eq "$(rows whole.h5)" ] || { echo "cluster.sh: $(rows x.h5) lines, not $(rows whole.h5)" >&2; exit 1; }
echo "$tool: $(rows x.h5) lines"
