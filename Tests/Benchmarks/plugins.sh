#!/usr/bin/env bash
# What a stage that does nothing costs: the 100 JPEGs of thumbnails.sh, without one, with one from a plugin in C, and with
# one that is compiled in. The peer is the chain without.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_setup
peers_only=
need_program

rm -rf "$scratch"
mkdir -p "$scratch"
built=$cache/plugins
mkdir -p "$built"
# shellcheck disable=SC2046
cc -shared -fPIC -O2 -Wall -Wextra -I "$tree/Sources/CPlugin/include" -o "$built/libnothing.so" \
  "$benchmarks/plugins/nothing.c" $(pkg-config --cflags --libs vips)

# `filter` with a condition that holds for all is a stage of the program that passes every picture on.
contenders=()
for name in none plugin compiled; do
  case $name in
    none) stage= more=() ;;
    plugin) stage='{ "stage": "bench.nothing" },' more=(--plugin "$built/libnothing.so") ;;
    compiled) stage='{ "stage": "filter", "if": { "image.width": { "gt": 0 } } },' more=() ;;
  esac
  sed "s|{ \"stage\": \"encode\"|$stage &|" "$jobs/thumbnails.json" >"$built/$name.json"
  contenders+=(--run "$name=exec '$program' run '$built/$name.json' --quiet ${more[*]} \
    --set photos='$corpus/large' --set out='$scratch/$name' --state '$scratch/state-$name'"
    --expect "$name=100:$scratch/$name")
done

header
alternate "${contenders[@]}" \
  --before "rm -rf '$scratch'/* && mkdir '$scratch'/{none,plugin,compiled}" \
  --row 'a no-op C plugin on 100 JPEGs' wall plugin none '<=1.01' \
  --row 'a no-op C plugin on 100 JPEGs' cpu plugin none '<=1.01' \
  --row 'a no-op stage compiled in' wall compiled none '<=1.01' \
  --row 'a no-op stage compiled in' cpu compiled none '<=1.01'

# Runs differ by more than a stage that does nothing takes: what the report says of it alone, in all 100 pictures.
rm -rf "$scratch"
mkdir -p "$scratch/plugin"
"$program" run "$built/plugin.json" --quiet --plugin "$built/libnothing.so" --set photos="$corpus/large" \
  --set out="$scratch/plugin" --state "$scratch/state" --report "$scratch/report.json"
"$venv/bin/python" - "$scratch/report.json" <<'END'
import json
import sys

stages = [stage for item in json.load(open(sys.argv[1]))["items"] for stage in item["stages"]]
own = sum(stage["milliseconds"] for stage in stages if stage["name"] == "bench.nothing")
share = 100 * own / sum(stage["milliseconds"] for stage in stages)
print(f"| the plugin's own stage | {own:.0f} ms | - | {share:.2f} % of all stages | <=1 % |")
END
rm -rf "$scratch"
