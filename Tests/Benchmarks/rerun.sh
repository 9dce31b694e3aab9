#!/usr/bin/env bash
# 10,000 pictures of 256 × 256, unchanged: a second run against the first, and one that reads every input and output
# again (--check-content) against `cat` of the same files. As root, that pair starts with nothing in the page cache.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_setup
peers_only=
need_program

rm -rf "$scratch"
mkdir -p "$scratch"
log=$scratch/log.txt

ours() { # MORE…: over all of them, with nothing shown
  "$program" run "$jobs/thumbnails.json" --quiet --no-progress --state "$scratch/state" \
    --set width=128 --set photos="$corpus/small-10000" --set out="$scratch/out" "$@" >"$log" 2>&1 </dev/null ||
    { tail -n 20 "$log" >&2; exit 1; }
}
everything() { find "$corpus/small-10000" "$scratch/out" -type f -print0 | xargs -0 cat >/dev/null; }
forget() {
  sync
  [ -w /proc/sys/vm/drop_caches ] && echo 3 >/proc/sys/vm/drop_caches
  true
}
# seconds COMMAND…: how long it takes.
seconds() {
  local begin=$EPOCHREALTIME
  "$@"
  local end=$EPOCHREALTIME
  echo $(((${end/./} - ${begin/./}))) | awk '{ printf "%.3f", $1 / 1e6 }'
}
# counts STATUS: how many items of the last report ended so.
count() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["run"]["counts"][sys.argv[2]])' "$scratch/report.json" "$1"; }
expect() { # STATUS
  [ "$(count "$1")" = 10000 ] || { echo "rerun: $(count "$1") of 10,000 are $1" >&2; exit 1; }
}

first=() second=() content=() cats=()
for ((round = 1; round <= runs; round++)); do
  rm -rf "$scratch/state" "$scratch/out"
  first+=("$(seconds ours --report "$scratch/report.json")")
  expect done
  second+=("$(seconds ours --report "$scratch/report.json")")
  expect skipped
  forget
  cats+=("$(seconds everything)")
  forget
  content+=("$(seconds ours --check-content --report "$scratch/report.json")")
  expect skipped
  echo "  round $round: first ${first[-1]} s, second ${second[-1]} s, content ${content[-1]} s, cat ${cats[-1]} s" >&2
done

header
python3 - "${first[*]}" "${second[*]}" "${content[*]}" "${cats[*]}" <<'PY'
import statistics
import sys

first, second, content, cat = ([float(word) for word in words.split()] for words in sys.argv[1:])


def row(work, ours, peer, ratio, target, reached):
    print(f"| {work} | {ours} | {peer} | {ratio} | {target} {'reached' if reached else 'MISSED'} |")


middle = statistics.median
factor = middle(a / b for a, b in zip(first, second))
slower = middle(a / b for a, b in zip(content, cat))
row("second run over 10,000 pictures (wall)", f"{middle(second):.2f} s", "-", "-", "< 2 s", middle(second) < 2)
row("second run over 10,000 pictures (wall)", f"{middle(second):.2f} s", f"first {middle(first):.2f} s",
    f"{factor:.0f}", ">= 100", factor >= 100)
row("with content checked (wall)", f"{middle(content):.2f} s", f"cat {middle(cat):.2f} s", f"{slower:.2f}",
    "<= 1.20", slower <= 1.2)
PY
rm -rf "$scratch"
