#!/usr/bin/env bash
# Work here and waiting for a service must go on at once: 200 pictures, a server that takes 300 ms to answer, some 30 ms
# of work a picture on two workers. Measured in turns: the work alone, the waiting alone, and both; the best of RUNS (3).
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_program

pictures=${PICTURES:-200}
concurrency=${CONCURRENCY:-8 20}
peers=${PIPELINE_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/pipeline-peers}/venv/bin/python
[ -x "$peers" ] || { echo "the server needs the environment of Scripts/peers" >&2; exit 1; }

rm -rf "$scratch"
mkdir -p "$scratch/large" "$scratch/small"
server=
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$scratch"
}
trap cleanup EXIT

# Pictures that take about 30 ms to decode and encode, and ones that take next to nothing.
"$peers" - "$scratch" "$pictures" "${SIDE:-640}" <<'PYTHON'
import os, sys
import numpy
from PIL import Image

folder, count, side = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
y, x = numpy.mgrid[0:side, 0:side]
noise = numpy.random.default_rng(7).integers(0, 24, (side, side, 3))
pixels = numpy.stack([x * 200 // side, y * 200 // side, (x + y) * 100 // side], 2) + noise
for name, image in (("large", Image.fromarray(pixels.astype("uint8"))), ("small", Image.new("RGB", (8, 8)))):
    first = f"{folder}/{name}/p0000.png"
    image.save(first)
    for number in range(1, count):
        os.link(first, f"{folder}/{name}/p{number:04}.png")
PYTHON

"$peers" "$tree/Tests/Support/peers/standin/server.py" >"$scratch/port" 2>/dev/null &
server=$!
until [ -s "$scratch/port" ]; do kill -0 "$server"; sleep 0.05; done
port=$("$peers" -c 'import json, sys; print(json.loads(sys.stdin.readline())["http"])' <"$scratch/port")

latency() {
  "$peers" - "$port" "$1" <<'PYTHON'
import json, sys, urllib.request
request = urllib.request.Request(
    f"http://127.0.0.1:{sys.argv[1]}/control/settings",
    json.dumps({"sink": {"latency": float(sys.argv[2])}, "keep": False, "log": False}).encode(),
    {"Content-Type": "application/json"})
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).read()
PYTHON
}

job() { # job PICTURES CONCURRENCY
  cat >"$scratch/job.json" <<END
{
  "version": 1, "name": "upload", "state": "state",
  "input": { "files": ["$1/*"] },
  "stages": [
    { "stage": "decode" },
    { "stage": "encode", "format": "webp", "effort": 2 },
    { "stage": "upload", "provider": "http", "url": "http://127.0.0.1:$port/sink/bench/up", "concurrency": $2 }
  ]
}
END
}

measure() { # measure PICTURES CONCURRENCY LATENCY: seconds
  latency "$3"
  job "$1" "$2"
  rm -rf "$scratch/state"
  local start end
  start=$(date +%s.%N)
  "$program" run "$scratch/job.json" --quiet --no-progress --jobs 2 >&2
  end=$(date +%s.%N)
  echo "$end - $start" | bc -l
}

least() { # least A B: the lesser of two numbers, of which the first may be empty
  awk -v a="$1" -v b="$2" 'BEGIN { print (a == "" || b + 0 < a + 0) ? b : a }'
}

echo "| uploads at once | work alone | waiting alone | both | ratio to the longer | target |"
echo "|---|---|---|---|---|---|"
failed=
for at_once in $concurrency; do
  work='' waiting='' both=''
  for ((round = 0; round < ${RUNS:-3}; round++)); do
    work=$(least "$work" "$(measure large "$at_once" 0)")
    waiting=$(least "$waiting" "$(measure small "$at_once" 0.3)")
    both=$(least "$both" "$(measure large "$at_once" 0.3)")
  done
  row=$(awk -v n="$at_once" -v a="$work" -v b="$waiting" -v c="$both" 'BEGIN {
    longer = (a > b) ? a : b; ratio = c / longer; missed = (ratio > 1.1) ? ", missed" : ""
    printf "| %d | %.2f s | %.2f s | %.2f s | %.3f | ≤1.1%s |", n, a, b, c, ratio, missed }')
  echo "$row"
  case $row in *missed*) failed=1 ;; esac
done
[ -z "$failed" ]
