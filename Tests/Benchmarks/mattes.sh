#!/usr/bin/env bash
# Cut-outs of photos with true mattes and of synthetic pictures whose colours are known too, scored: ours, rembg's with
# the same model, rembg's masks after its best contrast curve, and rembg with `-a`. mattes.py says what is measured.
#
#   mattes.sh [--set NAME=VALUE …]      options go to the program: --set precision=fast
#
# The photos are those of the test data's `matte` folder (PIPELINE_TEST_DATA). Pictures and rembg's cut-outs are kept in
# the cache; making them takes some minutes, once. OURS=FOLDER scores cut-outs made before, in place of the program's.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

photos=${PIPELINE_TEST_DATA:-$tree/../shared/data}/matte
[ -d "$photos" ] || { echo "$photos is not there: set PIPELINE_TEST_DATA" >&2; exit 1; }
# No corpus is needed, so not all of setup.
[ -x "$venv/bin/rembg" ] || "$benchmarks/setup"

export PYTHONDONTWRITEBYTECODE=1
mattes() { "$venv/bin/python" "$benchmarks/mattes.py" "$@"; }
kept=$cache/mattes
mattes prepare "$(realpath "$photos")" "$kept"
mattes rembg "$kept" "$PIPELINE_HOME/models"

if [ -n "$peers_only" ]; then
  mattes tables "$kept"
elif [ -n "${OURS:-}" ]; then
  mattes tables "$kept" "$OURS"
else
  need_program
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  "$program" run "$jobs/mattes.json" --quiet --no-progress --state "$work/state" --set photos="$kept/photos" \
    --set out="$work/out" "$@"
  mattes tables "$kept" "$work/out"
fi
