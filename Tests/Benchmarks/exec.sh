#!/usr/bin/env bash
# What `exec` costs a picture, with `cat` as the program: 100 JPEGs of 2725 × 2225 to 800 pixels wide, with the stage and
# without, in turns and on one worker, for each way of handing pictures over.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_setup
need_program

rm -rf "$scratch"
mkdir -p "$scratch"
job() { # job NAME STAGE
  cat >"$scratch/$1.json" <<END
{
  "version": 1,
  "name": "$1",
  "input": { "files": ["$corpus/large/*.jpg"] },
  "stages": [
    { "stage": "decode" },
    { "stage": "resize", "width": 800 },
    $2
    { "stage": "encode", "format": "jpeg", "quality": 80, "metadata": "none" },
    { "stage": "write", "to": "$scratch/out/$1/\${item.stem}.\${ext}" }
  ]
}
END
}
job none ''
contenders=()
run() { contenders+=(--run "$1=exec '$program' run '$scratch/$1.json' --jobs 1 --quiet --state '$scratch/state-$1' --force"); }
run none
for format in png tiff ppm; do
  job "$format" "{ \"stage\": \"exec\", \"command\": [\"cat\"], \"format\": \"$format\" },"
  run "$format"
done
rows=()
for format in png tiff ppm; do rows+=(--row "exec cat, $format" wall "$format" none '-'); done
header
alternate "${contenders[@]}" --before "rm -rf '$scratch/out' '$scratch'/state-*" "${rows[@]}"
echo "Overhead a picture is a hundredth of the difference; it is to stay under 15 ms."
rm -rf "$scratch"
