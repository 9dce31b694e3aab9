#!/usr/bin/env bash
# Every comparison, one table each; about half an hour. RUNS=3 for a quicker look.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_setup
for script in startup thumbnails cutout mattes overlap scale rerun ledger inference agreement formats shards upload plugins; do
  # One that cannot run here does not keep the others from it.
  [ -x "$benchmarks/$script.sh" ] || continue
  echo
  echo "$script"
  "$benchmarks/$script.sh" || { echo "$script.sh failed" >&2; failed=yes; }
done
[ -z "${failed:-}" ]
