"""usage: plan.py FOLDER COUNT PROGRAM"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c6360000000020001"
    "48afa4710000000049454e44ae426082")
# The memory an input may take besides its path, in bytes, and the seconds to the first picture.
MOST_BYTES, MOST_SECONDS = 400, 2


def make(folder, count):
    """One file under many names, a thousand in each folder."""
    folder.mkdir(parents=True, exist_ok=True)
    master = folder / "master.png"
    master.write_bytes(PNG)
    for number in range(count):
        if number % 1000 == 0:
            (folder / f"in/{number // 1000:04}").mkdir(parents=True, exist_ok=True)
            # File systems bound the links of one file.
            master = folder / f"in/{number // 1000:04}/p0000000.png"
            master.write_bytes(PNG)
        else:
            os.link(master, folder / f"in/{number // 1000:04}/p{number:07}.png")
    return folder


def job(folder):
    path = folder / "job.json"
    path.write_text(json.dumps({
        "version": 1, "input": {"files": ["in/**/*.png"]},
        "stages": [
            {"stage": "decode"}, {"stage": "encode", "format": "png"},
            {"stage": "write", "to": "out/${item.dir}/${item.stem}.${ext}"},
        ],
    }))
    return path


def peak(program, folder):
    """Peak resident bytes of `plan`, and its seconds."""
    begin = time.monotonic()
    process = subprocess.Popen([program, "plan", job(folder)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, status
    return usage.ru_maxrss * 1024, time.monotonic() - begin


def first(program, folder):
    """Seconds from the start of `run` to the first picture that is done, and the resident bytes then."""
    for left in ("out", ".pipeline"):
        shutil.rmtree(folder / left, ignore_errors=True)
    begin = time.monotonic()
    process = subprocess.Popen(
        [program, "run", "--verbose", "--no-progress", job(folder)], stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if ": done" in line:
            break
    seconds = time.monotonic() - begin
    with open(f"/proc/{process.pid}/status") as status:
        resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) << 10
    process.kill()
    process.wait()
    return seconds, resident


if __name__ == "__main__":
    root, count, program = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    many, one = root / str(count), root / "1"
    for folder, number in ((many, count), (one, 1)):
        if not (folder / "complete").exists():
            make(folder, number)
            (folder / "complete").touch()
    length = len(str(many / "in/0000/p0000000.png"))
    (large, seconds), (small, _) = peak(program, many), peak(program, one)
    (start, resident), (_, least) = first(program, many), first(program, one)
    planned = (large - small) / count - length
    running = (resident - least) / count - length
    verdict = "reached" if max(planned, running) <= MOST_BYTES else "MISSED"
    print("| work | measured | target |\n|---|---|---|")
    print(
        f"| memory for each of {count} inputs besides its path | {planned:.0f} bytes at the peak of `plan`, "
        f"{running:.0f} at the first picture of `run` | <= {MOST_BYTES} {verdict} |")
    print(
        f"| first picture done | {start:.2f} s (`plan` whole: {seconds:.2f} s) | <= {MOST_SECONDS} s "
        f"{'reached' if start <= MOST_SECONDS else 'MISSED'} |")
