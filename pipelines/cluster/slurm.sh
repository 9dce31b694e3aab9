#!/bin/bash
# Runs a job on a Slurm cluster: an array of tasks, each with its part of the pictures, then one task that joins their
# reports to one.
#
#   pipelines/cluster/slurm.sh JOB SHARDS [options of sbatch…]
#   pipelines/cluster/slurm.sh shop/job.json 16
#   pipelines/cluster/slurm.sh shop/job.json '16%4' --partition=short    # at most 4 tasks at a time
#
# Submits and returns. All nodes must see the job's folder and the current one under the same names. Reports go to
# reports/ARRAY/ in the current folder, the joined one to reports/ARRAY/report.json, where ARRAY is the array's number.
# Of the joined report, exitCode is what one run of the whole job would have ended with.
#
# PIPELINE names the program where it is not on the nodes' PATH.
#
# The same array again, or a part of it by hand (`pipeline run JOB --shard 3/16`), does only what is missing.

#SBATCH --job-name=pipeline
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=2G
#SBATCH --time=04:00:00
# Two minutes before its time is over a task is told: it finishes the pictures in flight and writes its report.
#SBATCH --signal=B:TERM@120
# When its node fails or the task is preempted, it starts again and goes on where it was.
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=reports/%A-%a.log

set -eu
pipeline=${PIPELINE:-pipeline}

if [ -z "${SLURM_JOB_ID-}" ]; then
  # On the machine that submits.
  if [ $# -lt 2 ]; then
    echo "usage: $0 JOB SHARDS [options of sbatch...]" >&2
    exit 2
  fi
  job=$1 shards=$2
  shift 2
  # sbatch does not make the folder of --output.
  mkdir -p reports
  array=$(sbatch --parsable --array="1-$shards" "$@" "$0" "$job")
  array=${array%%;*}
  # afterany: the reports of tasks that failed or were interrupted say what happened.
  merge=$(sbatch --parsable --dependency="afterany:$array" --job-name=pipeline-merge --time=00:30:00 \
    --output="reports/$array-merge.log" "$0" "$job" "$array")
  echo "array $array, merge ${merge%%;*}: reports/$array/report.json"
elif [ -n "${SLURM_ARRAY_TASK_ID-}" ]; then
  # One shard. SLURM_ARRAY_TASK_ID and its kin say which.
  folder=reports/$SLURM_ARRAY_JOB_ID
  mkdir -p "$folder"
  "$pipeline" run "$1" --shard auto --jobs "${SLURM_CPUS_PER_TASK:-1}" --no-progress \
    --report "$folder/shard-$SLURM_ARRAY_TASK_ID.json" &
  run=$!
  trap 'kill -TERM "$run" 2>/dev/null || true' TERM INT
  code=0
  wait "$run" || code=$?
  # The signal ends the first `wait`, not the run.
  while kill -0 "$run" 2>/dev/null; do
    code=0
    wait "$run" || code=$?
  done
  # Killed, most often for want of memory: three more attempts, each with what is left to do.
  if [ "$code" -eq 137 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 3 ]; then
    scontrol requeue "$SLURM_JOB_ID"
  fi
  exit "$code"
else
  # After the array. Refused where a shard left no report: its log says why.
  exec "$pipeline" report merge "reports/$2"/shard-*.json --output "reports/$2/report.json"
fi
