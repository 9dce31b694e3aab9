#!/usr/bin/env bash
# Inference alone: maps a second through our pool with two requests on two threads, against the throughput that
# OpenVINO's own benchmark_app reports for the same file, precision and threads. RUNS rounds, taking turns; COUNT maps.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

# No pictures are needed, so not all of setup.
[ -x "$venv/bin/benchmark_app" ] || "$benchmarks/setup"
count=${COUNT:-200}
bench=${INFERENCE_BENCH:-$tree/.build/release/inference-bench}
if [ -z "$peers_only" ] && [ ! -x "$bench" ]; then
  swift build --package-path "$tree" -c release --static-swift-stdlib --product inference-bench >&2
fi

"$venv/bin/python" - "$bench" "$venv/bin/benchmark_app" "$PIPELINE_HOME/models/u2netp.onnx" "$count" "$runs" "$peers_only" <<'PYTHON'
import json, re, statistics, subprocess, sys

bench, app, model, count, runs, peers_only = sys.argv[1:]


def ours(precision):
    text = subprocess.run([bench, "u2netp", precision, "2", "2", count], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(text.stdout)


def peer():
    # Two streams of one thread: what its throughput hint comes to on two cores. It takes -nthreads with no hint only.
    command = [app, "-m", model, "-d", "CPU", "-infer_precision", "f32", "-niter", count]
    command += ["-hint", "none", "-nstreams", "2", "-nireq", "2", "-nthreads", "2"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = re.search(r"Throughput: *([0-9.]+) FPS", done.stdout)
    if done.returncode != 0 or not found:
        sys.exit("inference.sh: benchmark_app failed:\n" + done.stdout[-4000:])
    return float(found[1])


ratios, mine, theirs, fast = [], [], [], []
precision = None
for turn in range(int(runs)):
    # Alternately first, so that a machine that slows down favours no one.
    order = ["peer", "ours"] if turn % 2 else ["ours", "peer"]
    for who in order:
        if who == "peer":
            theirs.append(peer())
        elif not peers_only:
            mine.append(ours("f32")["perSecond"])
    if not peers_only:
        ratios.append(mine[-1] / theirs[-1])
        said = ours("fast")
        precision = said["precision"]
        fast.append(said["perSecond"] / mine[-1])
    print(f"  run {turn + 1}: " + ", ".join(f"{x[-1]:.2f}/s" for x in (mine, theirs) if x), file=sys.stderr)

print("| work | ours | peer | ratio | target |")
print("|---|---|---|---|---|")
name = f"u2netp f32, {count} maps, 2 requests on 2 threads"
if peers_only:
    print(f"| {name} | - | benchmark_app {statistics.median(theirs):.2f}/s | - | >=0.95 |")
else:
    ratio = statistics.median(ratios)
    verdict = "reached" if ratio >= 0.95 else "MISSED"
    print(f"| {name} | {statistics.median(mine):.2f}/s | benchmark_app {statistics.median(theirs):.2f}/s | "
          f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | >=0.95 {verdict} |")
    print(f"| fast, which is {precision} on this CPU | {statistics.median(fast):.2f} × f32 | - | - | - |")
PYTHON
