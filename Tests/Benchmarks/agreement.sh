#!/usr/bin/env bash
# Masks of real photos, ours in f32 and rembg's with the same model: pixel by pixel, with the limits that agreement.py
# states. The photos are those of the test data's `matte` folder (PIPELINE_TEST_DATA). PRECISION=fast shows the other.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

photos=${PIPELINE_TEST_DATA:-$tree/../shared/data}/matte
[ -d "$photos" ] || { echo "$photos is not there: set PIPELINE_TEST_DATA" >&2; exit 1; }
photos=$(realpath "$photos")
# No pictures are made for this, so not all of setup.
[ -x "$venv/bin/rembg" ] || "$benchmarks/setup"
peers_only=
need_program

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
agreement() { "$venv/bin/python" "$benchmarks/agreement.py" "$@"; }
masks_of() { # PHOTOS MASKS
  "$program" run "$jobs/agreement.json" --quiet --no-progress \
    --state "$work/state" --set photos="$1" --set out="$2" --set precision="${PRECISION:-f32}"
}

# Copies of the photos that have a colour profile, without it: agreement.py says why.
mkdir "$work/copies"
agreement plain "$photos" "$work/copies"
masks_of "$photos" "$work/masks"
[ -z "$(ls "$work/copies")" ] || masks_of "$work/copies" "$work/plain"
agreement compare "$photos" "$PIPELINE_HOME/models" "$work/masks" "$work/plain"
