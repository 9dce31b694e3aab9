#!/usr/bin/env bash
# 10,000 pictures of 256 × 256 against 1,000 of them: time per picture and peak memory must stay the same.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_setup
peers_only=
need_program

rm -rf "$scratch"
mkdir -p "$scratch"
ours() { # FOLDER
  echo "exec '$program' run '$jobs/thumbnails.json' --quiet --set width=128 --set photos='$1' --set out='$scratch/out' \
    --state '$scratch/state'"
}

header
alternate --before "rm -rf '$scratch'/*" \
  --run "10,000=$(ours "$corpus/small-10000")" --run "1,000=$(ours "$corpus/small-1000")" \
  --expect "10,000=10000:$scratch/out" --expect "1,000=1000:$scratch/out" \
  --per 10,000=10000 --per 1,000=1000 \
  --row '256-px pictures, time for each' wall 10,000 1,000 '<=1.05' \
  --row '256-px pictures, peak memory' memory 10,000 1,000 '<=1.10'
rm -rf "$scratch"
