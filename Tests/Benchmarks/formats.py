"""Runs each tool on each file of a collection with known outcomes and prints a table.

Right is: a file that is whole becomes a PNG of the expected sides and colours (where the collection's manifest gives
them) with exit status 0; a file that is damaged, cut short, too large or no picture ends with another status and leaves
no PNG. A crash and a run of more than 20 seconds are wrong, whatever the file. Where the manifest leaves the outcome
open, anything else is right.
"""

import csv
import os
import re
import subprocess
import sys
import warnings

from PIL import Image, PngImagePlugin

PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY = 1 << 28
Image.MAX_IMAGE_PIXELS = None
warnings.simplefilter("ignore")

PILLOW = """
import io, sys, warnings
warnings.simplefilter("error", __import__("PIL.Image").Image.DecompressionBombWarning)
from PIL import Image, ImageCms, ImageOps
with Image.open(sys.argv[1]) as picture:
    picture.load()
    profile = picture.info.get("icc_profile")
    picture = ImageOps.exif_transpose(picture)
    if profile:
        picture = ImageCms.profileToProfile(
            picture, ImageCms.ImageCmsProfile(io.BytesIO(profile)), ImageCms.createProfile("sRGB"),
            outputMode="RGBA" if picture.mode == "RGBA" else "RGB")
    elif picture.mode in ("CMYK", "LAB", "YCbCr", "F"):
        picture = picture.convert("RGB")
    picture.save(sys.argv[2])
"""

JOB = """{ "version": 1, "input": { "files": ["INPUT"] }, "stages": [
  { "stage": "decode", "allow": ["svg"] }, { "stage": "encode", "format": "png" },
  { "stage": "write", "to": "OUTPUT" } ], "run": { "itemDeadline": 15 } }"""


def main():
    folder, program, work = sys.argv[1:]
    with open(os.path.join(folder, "MANIFEST.tsv"), newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    srgb = os.path.join(work, "srgb.icc")
    from PIL import ImageCms

    with open(srgb, "wb") as file:
        file.write(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    script = os.path.join(work, "pillow.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(PILLOW)
    job = os.path.join(work, "job.json")

    def ours(source, target):
        text = JOB.replace("INPUT", re.sub(r"([\[\]{}*?\\])", r"\\\\\1", source)).replace("OUTPUT", target)
        with open(job, "w", encoding="utf-8") as file:
            file.write(text)
        return [program, "run", job, "--quiet"]

    tools = {
        "pipeline": ours,
        "ImageMagick": lambda s, t: ["convert", s + "[0]", "-auto-orient", "-profile", srgb, t],
        "vipsthumbnail": lambda s, t: ["vipsthumbnail", s, "--size", "100000x100000>", "-e", "srgb", "-o", t],
        "Pillow": lambda s, t: [sys.executable, script, s, t],
    }
    right = {name: 0 for name in tools}
    wrong = {name: [] for name in tools}
    for row in rows:
        for name, command in tools.items():
            target = os.path.join(work, "out.png")
            if os.path.exists(target):
                os.remove(target)
            verdict = judge(row, command(os.path.join(folder, row["file"]), target), target)
            if verdict is None:
                right[name] += 1
            else:
                wrong[name].append((row["file"], verdict))
    print("| tool | right | wrong |")
    print("|---|---|---|")
    for name in tools:
        print(f"| {name} | {right[name]} of {len(rows)} | {len(wrong[name])} |")
    for name in tools:
        print(f"\n{name}:")
        for file, verdict in wrong[name]:
            print(f"  {file}: {verdict}")


def judge(row, command, target):
    """None where the outcome is right, else what is wrong."""
    expect = row["expect"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode < 0 or done.returncode in (134, 139):
        return f"crashes (signal {-done.returncode})"
    exists = os.path.exists(target)
    succeeded = done.returncode == 0 and exists
    if expect in ("PARTIAL", "ERROR", "LIMIT", "ERROR_NO_HANG"):
        if succeeded:
            return f"{expect.lower()}: gives a picture and no error"
        return "leaves a picture behind although it failed" if exists else None
    if not succeeded:
        if exists:
            return "leaves a picture behind although it failed"
        loads = "ok" in row["observed_libvips_8.14.1"] and "load fails" not in row["observed_libvips_8.14.1"]
        must = expect in ("OK", "OK_FIRST") or expect == "OPTIONAL" and loads
        return "is not read" if must else None
    with Image.open(target) as picture:
        size = f"{picture.width}x{picture.height}"
        wanted = row["size_after_orientation"]
        if wanted and size != wanted:
            return f"has {size} pixels, not {wanted}"
        colour = row["expected_colour_after_icc_to_sRGB"]
        if colour.startswith("sRGB "):
            numbers = [int(n) for n in re.findall(r"\d+", colour)[:3]]
            rgb = picture.convert("RGB")
            means = [sum(i * n for i, n in enumerate(band.histogram())) / (rgb.width * rgb.height) for band in rgb.split()]
            if any(abs(a - b) > 3 for a, b in zip(means, numbers)):
                return f"has the colour {[round(m) for m in means]}, not {numbers}"
    return None


if __name__ == "__main__":
    main()
