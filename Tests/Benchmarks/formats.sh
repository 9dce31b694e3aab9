#!/usr/bin/env bash
# Which real files each tool gets right: the test data's `torture` folder (PIPELINE_TEST_DATA), to PNG in sRGB, upright.
# ImageMagick, vipsthumbnail and Pillow are asked as their manuals have it; formats.py says what counts as right.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

pictures=${PIPELINE_TEST_DATA:-$tree/../shared/data}/torture
[ -f "$pictures/MANIFEST.tsv" ] || { echo "$pictures is not there: set PIPELINE_TEST_DATA" >&2; exit 1; }
# No pictures are made for this, so not all of setup.
[ -x "$venv/bin/python" ] || "$benchmarks/setup"
peers_only=
need_program

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
"$venv/bin/python" "$benchmarks/formats.py" "$(realpath "$pictures")" "$program" "$work"
