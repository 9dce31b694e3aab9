#!/usr/bin/env bash
# What keeping the ledger costs: 100 JPEGs of 2725 × 2225 to 800 pixels wide, by this program and by the last one that
# kept none. That one is built once, from its commit; BASELINE=PROGRAM names another.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_setup
peers_only=
need_program

commit=e1f9a59
baseline=${BASELINE:-$cache/baseline-$commit/pipeline}
if [ ! -x "$baseline" ]; then
  echo "ledger: building the program of $commit (some minutes)" >&2
  work=$cache/baseline-$commit.work
  rm -rf "$work"
  mkdir -p "$work" "$(dirname -- "$baseline")"
  git -C "$tree" archive "$commit" | tar -x -C "$work"
  # As make build does.
  (cd "$work" && swift build -c release --static-swift-stdlib --product pipeline) >&2
  cp "$work/.build/release/pipeline" "$baseline"
  rm -rf "$work"
fi

rm -rf "$scratch"
mkdir -p "$scratch"
without() { echo "exec '$1' run '$jobs/thumbnails.json' --quiet --set photos='$corpus/large' --set out='$scratch/out'"; }

header
alternate --before "rm -rf '$scratch'/*; sync" \
  --run "ours=$(without "$program") --state '$scratch/state'" --run "without=$(without "$baseline")" \
  --expect "ours=100:$scratch/out" --expect "without=100:$scratch/out" \
  --row '100 JPEGs with a ledger' wall ours without '<=1.03' \
  --row '100 JPEGs with a ledger' cpu ours without '<=1.03'
rm -rf "$scratch"
