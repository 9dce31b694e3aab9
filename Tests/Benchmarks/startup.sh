#!/usr/bin/env bash
# What starting costs: `pipeline --version` and `pipeline lint` against /bin/true, at most 50 ms more.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_setup
peers_only=
need_program

mkdir -p "$cache"
# No shell in between: it would be most of what is measured.
hyperfine --shell none --warmup 10 --runs 60 --style none --export-json "$cache/startup.json" \
  /bin/true "'$program' --version" "'$program' lint '$tree/pipelines/demo.json'" >/dev/null
header
"$venv/bin/python" - "$cache/startup.json" <<'PY'
import json
import sys

with open(sys.argv[1]) as file:
    true, version, lint = (result["median"] * 1000 for result in json.load(file)["results"])
for work, ours in (("--version", version), ("lint", lint)):
    more = ours - true
    verdict = "reached" if more <= 50 else "MISSED"
    print(f"| start of {work} | {ours:.1f} ms | /bin/true {true:.1f} ms | +{more:.1f} ms | <= +50 ms {verdict} |")
PY
