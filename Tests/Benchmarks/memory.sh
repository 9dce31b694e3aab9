#!/usr/bin/env bash
# Resident memory over a long run of mixed pictures with giants among them, under 1.5 GiB of address space, and in a
# control group of 1.5 GiB where one is named: GROUP=/sys/fs/cgroup/… (it must exist, and the limit be set in it).
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_setup
need_program
count=${COUNT:-5000}
folder=$cache/memory-$count
[ -f "$folder/.complete" ] || { "$venv/bin/python" "$benchmarks/memory.py" make "$folder" "$count"; touch "$folder/.complete"; }
echo "| run | resident | change | target |"
echo "|---|---|---|---|"
rm -rf "$folder"/{out,.pipeline}
"$venv/bin/python" "$benchmarks/memory.py" run "$folder" "$count" "$program" 1572864
if [ -n "${GROUP:-}" ]; then
  rm -rf "$folder"/{out,.pipeline}
  "$venv/bin/python" "$benchmarks/memory.py" run "$folder" "$count" "$program" 0 "$GROUP"
fi
