#!/usr/bin/env bash
# 36 photos of 0.2 to 6 megapixels, background removed to PNG: the program and rembg, same model. `whole` is the program
# with its defaults (edges followed, colours cleaned, 8-bit integers), `plain` the work that rembg does, in its precision.
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

ours() { # FOLDER whole|plain
  local options=
  [ "$2" = whole ] || options="--set precision=f32 --set refine=false --set decontaminate=false"
  echo "exec '$program' run '$jobs/cutout.json' --quiet --set photos='$1' --set out='$scratch/ours' \
    --state '$scratch/state' $options"
}
rembg() { # FOLDER
  echo "exec '$venv/bin/rembg' p -m u2netp '$1' '$scratch/rembg'"
}

contenders=()
add_ours plain "$(ours "$corpus/cutout" plain)"
add_ours whole "$(ours "$corpus/cutout" whole)"
contenders+=(--run "rembg=$(rembg "$corpus/cutout")")
clear="rm -rf '$scratch'/* && mkdir '$scratch'/{ours,rembg}"

expect() { # N: the number of pictures each contender has to leave
  printf -- '--expect\n%s=%s:%s\n' plain "$1" "$scratch/ours" whole "$1" "$scratch/ours" rembg "$1" "$scratch/rembg"
}

header
mapfile -t each < <(expect 36)
alternate "${contenders[@]}" --before "$clear" "${each[@]}" \
  --row '36 photos to cut-outs' wall plain rembg '>=1.8' \
  --row '36 photos to cut-outs' wall whole rembg '>=2.2' \
  --row '36 photos to cut-outs' memory plain rembg '<=0.5' \
  --row '36 photos to cut-outs' memory whole rembg '<=0.5'

contenders=()
add_ours plain "$(ours "$cache/one" plain)"
add_ours whole "$(ours "$cache/one" whole)"
contenders+=(--run "rembg=$(rembg "$cache/one")")
mapfile -t each < <(expect 1)
alternate "${contenders[@]}" --before "$clear" "${each[@]}" \
  --row 'one small photo (start)' wall plain rembg - \
  --row 'one small photo (start)' wall whole rembg -
rm -rf "$scratch" "$cache/one"
