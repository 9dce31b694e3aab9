#!/usr/bin/env bash
# 100 JPEGs of 2725 × 2225 to 800 pixels wide, JPEG quality 80, stripped: the program, vipsthumbnail, a bare libvips
# loop in C, and ImageMagick.
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
need_setup
need_program

rm -rf "$scratch"
mkdir -p "$scratch"
# shellcheck disable=SC2046
cc -O2 -Wall -Wextra -o "$cache/bare_loop" "$benchmarks/bare_loop.c" -pthread $(pkg-config --cflags --libs vips)

contenders=()
add_ours ours "exec '$program' run '$jobs/thumbnails.json' --quiet \
  --set photos='$corpus/large' --set out='$scratch/ours' --state '$scratch/state'"
contenders+=(
  --run "vipsthumbnail=cd '$corpus/large' && ls | VIPS_CONCURRENCY=1 xargs -P2 -n25 \
    vipsthumbnail -s 800x -o '$scratch/vipsthumbnail/%s.jpg[Q=80,strip]'"
  --run "bare=exec '$cache/bare_loop' 800 80 '$scratch/bare' '$corpus'/large/*.jpg"
  --run "mogrify=exec mogrify -path '$scratch/mogrify' \
    -resize 800x -quality 80 -sampling-factor 4:2:0 -strip '$corpus/large/*.jpg'"
)

rows=$(alternate "${contenders[@]}" \
  --before "rm -rf '$scratch'/* && mkdir '$scratch'/{ours,vipsthumbnail,bare,mogrify}" \
  --expect ours="100:$scratch/ours" --expect vipsthumbnail="100:$scratch/vipsthumbnail" \
  --expect bare="100:$scratch/bare" --expect mogrify="100:$scratch/mogrify" \
  --row '100 JPEGs to 800 px' wall ours vipsthumbnail '<=1.00' \
  --row '100 JPEGs to 800 px' wall ours bare '<=1.08' \
  --row '100 JPEGs to 800 px' wall ours mogrify '>=7')

# A fair comparison writes the same thing: every contender once more, and its pictures looked at.
for ((i = 1; i < ${#contenders[@]}; i += 2)); do
  name=${contenders[i]%%=*}
  mkdir -p "$scratch/$name"
  bash -c "${contenders[i]#*=}" </dev/null >/dev/null 2>&1
  find "$scratch/$name" -name '*.jpg' -print0 |
    xargs -0 identify -format '%wx%h, quality %Q, chroma %[jpeg:sampling-factor]\n' | sort | uniq -c |
    sed "s/^ */  $name: /" >&2
done

header
echo "$rows"
rm -rf "$scratch"
