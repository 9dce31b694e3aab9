#!/usr/bin/env bash
# A plan of many tiny inputs: memory for each beyond that of a plan of one, and the time to the first picture that is
# done. COUNT=1000000 for a million.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_setup
need_program
"$venv/bin/python" "$benchmarks/plan.py" "$cache/plan" "${COUNT:-100000}" "$program"
