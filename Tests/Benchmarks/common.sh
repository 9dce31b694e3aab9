# Sourced by the benchmarks: where things are, and what every script checks first.
# shellcheck shell=bash
set -euo pipefail

benchmarks=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
tree=$(cd -- "$benchmarks/../.." && pwd)
cache=${PIPELINE_BENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pipeline-bench}
venv=$cache/venv
corpus=$cache/corpus
scratch=$cache/out
jobs=$benchmarks/jobs
# Another build of the program can be measured by naming it.
program=${PIPELINE:-$tree/.build/release/pipeline}
runs=${RUNS:-5}
PIPELINE_HOME=$("$tree/Scripts/home")
export PIPELINE_HOME

# With PEERS_ONLY=1 only the other tools run, for their figures before there is a program to compare.
peers_only=${PEERS_ONLY:-}

need_setup() {
  [ -f "$venv/.complete" ] && [ -f "$corpus/.complete" ] || "$benchmarks/setup"
}

need_program() {
  [ -n "$peers_only" ] && return
  [ -x "$program" ] || { echo "$program is not there: run \"make build\" first" >&2; exit 1; }
}

header() {
  echo "| work | ours | peer | ratio | target |"
  echo "|---|---|---|---|---|"
}

# add_ours NAME COMMAND: adds the program's side to the array `contenders`, except with PEERS_ONLY.
add_ours() {
  [ -n "$peers_only" ] && return
  contenders+=(--run "$1=$2")
}

alternate() {
  "$venv/bin/python" "$benchmarks/alternate" --runs "$runs" "$@"
}
