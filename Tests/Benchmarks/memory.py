"""Makes mixed pictures from a seed, and runs the program over them under limits of memory.

usage: memory.py make FOLDER COUNT | memory.py run FOLDER COUNT PROGRAM ADDRESSES [GROUP]

ADDRESSES is the limit of address space in KiB, 0 for none. GROUP is the folder of a control group that holds the limit;
the program is put into it.
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import resource

import numpy as np
from PIL import Image

SEED = 5
DISTINCT = 200
# Width and height of the giants: 24 to 50 megapixels, and how they are stored.
GIANTS = [
    (6000, 4000, "jpg"), (8660, 5774, "jpg"), (6000, 4000, "progressive.jpg"), (8660, 5774, "progressive.jpg"),
    (6000, 4000, "png"), (6000, 4000, "interlaced.png"), (6000, 4000, "webp"), (7000, 5000, "tif"),
]


def picture(width, height, rng):
    """Smooth colours with noise, so that no format finds it trivial."""
    small = rng.integers(0, 256, (height // 40 + 2, width // 40 + 2, 3), dtype=np.uint8)
    image = Image.fromarray(small).resize((width, height), Image.BICUBIC)
    noise = rng.integers(-6, 7, (height, width, 1), dtype=np.int16)
    return Image.fromarray(np.clip(np.asarray(image, dtype=np.int16) + noise, 0, 255).astype(np.uint8))


def store(image, path, kind):
    if kind == "jpg":
        image.save(path, quality=88)
    elif kind == "progressive.jpg":
        image.save(path, quality=88, progressive=True, subsampling=0)
    elif kind == "png":
        image.save(path, compress_level=1)
    elif kind == "interlaced.png":
        # Pillow cannot; libvips' tool can.
        plain = path.with_suffix(".plain.png")
        image.save(plain, compress_level=1)
        subprocess.run(["vips", "pngsave", plain, path, "--interlace", "--compression", "1"], check=True)
        plain.unlink()
    elif kind == "webp":
        image.save(path, quality=85, method=0)
    else:
        image.save(path, compression="tiff_lzw")


def make(folder, count):
    rng = np.random.default_rng(SEED)
    order = random.Random(SEED)
    (folder / "in").mkdir(parents=True, exist_ok=True)
    masters = folder / "masters"
    masters.mkdir(exist_ok=True)
    kinds = ["jpg", "jpg", "progressive.jpg", "png", "interlaced.png", "webp", "tif"]
    small = []
    for number in range(min(DISTINCT, count)):
        kind = kinds[number % len(kinds)]
        path = masters / f"s{number:03}.{kind}"
        if not path.exists():
            store(picture(order.randint(200, 900), order.randint(200, 700), rng), path, kind)
        small.append(path)
    giants = []
    for number, (width, height, kind) in enumerate(GIANTS):
        path = masters / f"g{number}.{kind}"
        if not path.exists():
            store(picture(width, height, rng), path, kind)
        giants.append(path)
    # A giant in each 125, all kinds in turn; the same place in the run whatever the seed.
    for number in range(count):
        source = giants[number // 125 % len(giants)] if number % 125 == 60 else small[order.randrange(len(small))]
        target = folder / "in" / f"{number:05}.{source.name.split('.', 1)[1]}"
        if not target.exists():
            os.link(source, target)


def status(process, name):
    with open(f"/proc/{process}/status") as file:
        return int(re.search(rf"^{name}:\s+(\d+) kB", file.read(), re.M).group(1))


def run(folder, count, program, addresses, group):
    job = folder / "job.json"
    job.write_text(json.dumps({
        "version": 1, "name": "memory", "input": {"directory": "in"},
        "stages": [
            {"stage": "decode"}, {"stage": "resize", "width": 400, "height": 400, "fit": "inside"},
            {"stage": "encode", "format": "webp", "effort": 0},
            {"stage": "write", "to": "out/${item.stem}.${ext}"},
        ],
    }))

    def limit():
        if addresses:
            resource.setrlimit(resource.RLIMIT_AS, (addresses << 10, addresses << 10))
        if group:
            with open(f"{group}/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))

    process = subprocess.Popen(
        [program, "run", "--verbose", "--no-progress", "--report", folder / "report.json", job],
        stderr=subprocess.PIPE, text=True, preexec_fn=limit)
    done = 0
    # A tenth of the run around each place: what is in flight at one moment is chance.
    places = {"early": (count // 10, []), "late": (count * 9 // 10, [])}
    width = count // 40
    tail = []
    for line in process.stderr:
        tail = tail[-20:] + [line]
        if not re.match(r"in/\d+\.", line):
            continue
        done += 1
        for place, samples in places.values():
            if place - width <= done < place + width:
                samples.append(status(process.pid, "VmRSS"))
    code = process.wait()
    if code:
        sys.exit(f"the run ended with {code}:\n{''.join(tail)}")
    report = json.loads((folder / "report.json").read_text())["run"]
    means = {name: sum(samples) / len(samples) / 1024 for name, (_, samples) in places.items()}
    change = means["late"] / means["early"] - 1
    assert report["counts"]["done"] == count, report["counts"]
    what = f"ulimit -v {addresses}" if addresses else f"group {group}" if group else "no limit"
    verdict = "reached" if change <= 0.10 else "MISSED"
    print(
        f"| {count} mixed pictures, {what} | {means['early']:.0f} MiB at {count // 10}, {means['late']:.0f} MiB at "
        f"{count * 9 // 10}, peak {report['peakBytes'] / 2**20:.0f} MiB, {report['wallSeconds']:.0f} s | "
        f"{change:+.1%} | <= +10 % {verdict} |")
    return change <= 0.10


if __name__ == "__main__":
    command, folder, count = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    if command == "make":
        make(folder, count)
    else:
        group = sys.argv[6] if len(sys.argv) > 6 else None
        sys.exit(not run(folder, count, sys.argv[4], int(sys.argv[5]), group))
