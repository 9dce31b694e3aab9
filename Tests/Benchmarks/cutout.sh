#!/usr/bin/env bash
# 36 photos of 0.2 to 6 megapixels, background removed to PNG: the program in both precisions and rembg, same model.
# rembg's own start (imports, session) is part of what its users wait for; the last rows show how much that is: one
# small photo takes hardly more than the start.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_setup
need_program

export OMP_NUM_THREADS=2
export U2NET_HOME=$cache/rembg-models
mkdir -p "$U2NET_HOME"
cmp -s "$PIPELINE_HOME/models/u2netp.onnx" "$U2NET_HOME/u2netp.onnx" ||
  cp "$PIPELINE_HOME/models/u2netp.onnx" "$U2NET_HOME/"

rm -rf "$scratch" "$cache/one"
mkdir -p "$scratch" "$cache/one"
cp "$corpus/cutout/00.jpg" "$cache/one/"

ours() { # FOLDER PRECISION
  echo "exec '$program' run '$jobs/cutout.json' --quiet --set photos='$1' --set out='$scratch/ours' --set precision=$2"
}
rembg() { # FOLDER
  echo "exec '$venv/bin/rembg' p -m u2netp '$1' '$scratch/rembg'"
}

contenders=()
add_ours f32 "$(ours "$corpus/cutout" f32)"
add_ours fast "$(ours "$corpus/cutout" fast)"
contenders+=(--run "rembg=$(rembg "$corpus/cutout")")
clear="rm -rf '$scratch'/* && mkdir '$scratch'/{ours,rembg}"

expect() { # N: the number of pictures each contender has to leave
  printf -- '--expect\n%s=%s:%s\n' f32 "$1" "$scratch/ours" fast "$1" "$scratch/ours" rembg "$1" "$scratch/rembg"
}

header
mapfile -t each < <(expect 36)
alternate "${contenders[@]}" --before "$clear" "${each[@]}" \
  --row '36 photos to cut-outs' wall f32 rembg '>=1.8' \
  --row '36 photos to cut-outs' wall fast rembg '>=3' \
  --row '36 photos to cut-outs' memory f32 rembg '<=0.5' \
  --row '36 photos to cut-outs' memory fast rembg '<=0.5'

contenders=()
add_ours f32 "$(ours "$cache/one" f32)"
add_ours fast "$(ours "$cache/one" fast)"
contenders+=(--run "rembg=$(rembg "$cache/one")")
mapfile -t each < <(expect 1)
alternate "${contenders[@]}" --before "$clear" "${each[@]}" \
  --row 'one small photo (start)' wall f32 rembg - \
  --row 'one small photo (start)' wall fast rembg -
rm -rf "$scratch" "$cache/one"
