#!/usr/bin/env python3
"""Darkens the corners of a picture: PPM on standard input, PPM on standard output. Needs nothing but Python.

Usage: vignette.py STRENGTH    0 (nothing) to 1 (black corners)
"""

import sys


def header(data):
    """Width, height, greatest value and where the samples begin."""
    numbers, at = [], 2
    while len(numbers) < 3:
        while data[at : at + 1].isspace():
            at += 1
        start = at
        while not data[at : at + 1].isspace():
            at += 1
        numbers.append(int(data[start:at]))
    return (*numbers, at + 1)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: vignette.py STRENGTH")
    strength = float(sys.argv[1])
    data = sys.stdin.buffer.read()
    if data[:2] != b"P6":
        sys.exit("expected a colour picture (P6) on standard input")
    width, height, most, start = header(data)
    if most != 255:
        sys.exit("expected 8 bits a sample")
    out = bytearray(data[: start + 3 * width * height])
    # One table for each of 64 distances: the samples of a run of pixels are then changed at once.
    tables = [bytes(int(v * (1 - strength * (d / 63) ** 2) + 0.5) for v in range(256)) for d in range(64)]
    for y in range(height):
        v = (2 * y + 1 - height) / height
        row = start + 3 * width * y
        step = max(1, width // 64)
        for x in range(0, width, step):
            u = (2 * x + step - width) / width
            table = tables[min(63, int(63 * ((u * u + v * v) / 2) ** 0.5))]
            end = row + 3 * min(width, x + step)
            out[row + 3 * x : end] = out[row + 3 * x : end].translate(table)
    sys.stdout.buffer.write(out)


main()
