#!/usr/bin/env bash
# The demo's chain over 40 photos: decoding, inference and encoding of different pictures must overlap, so that two
# workers use nearly two cores.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_setup
peers_only=
need_program

rm -rf "$scratch"
mkdir -p "$scratch"
header
alternate --before "rm -rf '$scratch'/*" \
  --run "ours=exec '$program' run '$jobs/chain.json' --quiet --jobs 2 \
    --set photos='$corpus/demo' --set out='$scratch/out' --state '$scratch/state'" \
  --expect ours="40:$scratch/out" \
  --row 'demo chain over 40 photos' cores ours - '>=1.85' \
  --row 'demo chain over 40 photos' wall ours - - \
  --row 'demo chain over 40 photos' memory ours - -
rm -rf "$scratch"
