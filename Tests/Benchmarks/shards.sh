#!/usr/bin/env bash
# Four shards on a Slurm of this machine, two tasks at a time with a worker each, against one process with two workers:
# the same outputs, at most 10 % more time. Needs root and Debian's slurmctld, slurmd, slurm-client and munge.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_setup
peers_only=
need_program
for tool in munged slurmctld slurmd sbatch squeue; do
  command -v "$tool" >/dev/null || { echo "$tool is not installed" >&2; exit 1; }
done
[ "$(id -u)" -eq 0 ] || { echo "a Slurm of its own needs root" >&2; exit 1; }

work=$(mktemp -d)
daemons=()
finish() {
  [ -z "${SLURM_CONF-}" ] || scancel --user=root 2>/dev/null || true
  for daemon in ${daemons[@]+"${daemons[@]}"}; do kill "$daemon" 2>/dev/null || true; done
  wait
  rm -rf "$work"
}
trap finish EXIT

# The JPEGs of the corpus, each several times: shards that last less than Slurm takes to start one say nothing.
mkdir -p "$work/in" "$work/munge" "$work/state" "$work/spool"
copies=${COPIES:-8}
count=0
while IFS= read -r picture; do
  for ((copy = 0; copy < copies; copy++)); do
    ln "$picture" "$work/in/$count-$copy.jpg" 2>/dev/null || cp "$picture" "$work/in/$count-$copy.jpg"
  done
  count=$((count + 1))
done < <(find "$corpus" -name '*.jpg' -size +100k | sort | head -n 100)
[ "$count" -gt 0 ] || { echo "no JPEGs in $corpus" >&2; exit 1; }
cat >"$work/job.json" <<'JSON'
{
  "version": 1,
  "name": "shards",
  "input": { "files": ["in/*.jpg"] },
  "stages": [
    { "stage": "decode" },
    { "stage": "resize", "width": 1600, "height": 1600 },
    { "stage": "encode", "format": "webp", "quality": 82 },
    { "stage": "write", "to": "out/${item.stem}.${ext}" }
  ]
}
JSON

# --- The cluster ----------------------------------------------------------------------------------------------------

host=$(hostname -s)
port=$((20000 + RANDOM % 10000))
(umask 077 && head -c 1024 /dev/urandom >"$work/key")
cat >"$work/slurm.conf" <<CONF
ClusterName=bench
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 RealMemory=8000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$work/slurm.conf
munged --foreground --force --key-file="$work/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
  --log-file="$work/munge/log" --seed-file="$work/munge/seed" &
daemons+=($!)
until [ -S "$work/munge/socket" ]; do sleep 0.1; done
slurmctld -D >/dev/null 2>&1 &
daemons+=($!)
slurmd -D -N "$host" >/dev/null 2>&1 &
daemons+=($!)
until [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ]; do sleep 0.2; done

# --- The runs -------------------------------------------------------------------------------------------------------

# From submission to the merged report, waiting in the queue and the merge included.
cd "$work"
single=() sharded=()
now() { date +%s.%N; }
for ((run = 0; run < runs; run++)); do
  rm -rf out .pipeline
  begin=$(now)
  "$program" run job.json --jobs 2 --quiet --report single.json
  single+=("$(echo "$(now) - $begin" | bc)")
  (cd out && sha256sum -- * | sort) >single.sums

  rm -rf out .pipeline
  begin=$(now)
  array=$(PIPELINE=$program "$tree/pipelines/cluster/slurm.sh" job.json 4%2 | sed 's/^array \([0-9]*\),.*/\1/')
  report=reports/$array/report.json
  until [ -f "$report" ] || [ -z "$(squeue --noheader)" ]; do sleep 0.05; done
  sharded+=("$(echo "$(now) - $begin" | bc)")
  [ -f "$report" ] || { cat reports/*.log >&2; exit 1; }
  (cd out && sha256sum -- * | sort) >sharded.sums
  cmp single.sums sharded.sums
done

header
"$venv/bin/python" - "${single[*]}" "${sharded[*]}" "$((count * copies))" <<'PY'
import statistics
import sys

single, sharded = (statistics.median(map(float, text.split())) for text in sys.argv[1:3])
ratio = sharded / single
verdict = "reached" if ratio <= 1.1 else "MISSED"
print(f"| {sys.argv[3]} JPEGs, 4 shards on Slurm, 2 at a time | {sharded:.2f} s | one process, 2 workers {single:.2f} s "
      f"| {ratio:.3f} | <= 1.10 {verdict} |")
PY
