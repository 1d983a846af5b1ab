"""Are two folders of golden values the same, but for rounding and versions?

usage: compare.py COMMITTED FRESH
Numbers may differ by 1e-12 of themselves, or where they come out of fp32 sums (training runs,
norms) by 1e-5; fp32 bits by 4 units in the last place, or 1e-6 of the largest in their list.
"""

import json
import struct
import sys
from pathlib import Path

from safetensors.numpy import load_file


def floats(words):
    return [struct.unpack(">f", bytes.fromhex(words[i:i + 8]))[0]
            for i in range(0, len(words), 8)]


def place(x):
    bits = struct.unpack(">i", struct.pack(">f", x))[0]
    return bits if bits >= 0 else -2**31 - bits


def near_words(a, b):
    largest = max(map(abs, a), default=0)
    return len(a) == len(b) and all(
        abs(place(x) - place(y)) <= 4 or abs(x - y) <= 1e-6 * largest for x, y in zip(a, b))


def is_words(text):
    return len(text) % 8 == 0 and len(text) > 0 and set(text) <= set("0123456789abcdef")


def differences(a, b, tolerance, path=""):
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(set(a) | set(b)):
            if key == "versions":
                continue
            if key not in a or key not in b:
                yield f"{path}/{key} is in one only"
            else:
                yield from differences(a[key], b[key], tolerance, f"{path}/{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b)):
            yield from differences(x, y, tolerance, f"{path}/{i}")
    elif isinstance(a, str) and isinstance(b, str) and is_words(a) and is_words(b):
        if not near_words(floats(a), floats(b)):
            yield f"{path}: {floats(a)} and {floats(b)}"
    elif isinstance(a, float) and isinstance(b, float):
        if abs(a - b) > tolerance * max(abs(a), abs(b)):
            yield f"{path}: {a!r} and {b!r}"
    elif a != b:
        yield f"{path}: {a!r} and {b!r}"


def file_differences(committed, fresh):
    if not fresh.exists():
        yield "was not made"
    elif committed.suffix == ".json" and committed.name != "config.json":
        tolerance = 1e-5 if committed.stem == "training_run" else 1e-12
        yield from differences(json.loads(committed.read_text()), json.loads(fresh.read_text()),
                               tolerance)
    elif committed.name == "training_run.safetensors" or "exported" in committed.parts and \
            committed.suffix == ".safetensors":
        a, b = load_file(committed), load_file(fresh)
        for name in sorted(set(a) | set(b)):
            if name not in a or name not in b or a[name].shape != b[name].shape:
                yield f"{name} differs in shape, or is in one only"
            elif abs(a[name] - b[name]).max() > 1e-5:
                yield f"{name} differs by {abs(a[name] - b[name]).max()}"
    elif committed.name != "config.json" and committed.read_bytes() != fresh.read_bytes():
        yield "differs"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    committed, fresh = map(Path, sys.argv[1:])
    different = 0
    files = sorted(p.relative_to(committed) for p in committed.rglob("*") if p.is_file())
    if not files:
        sys.exit(f"{committed} holds no files")
    for name in files:
        found = list(file_differences(committed / name, fresh / name))
        print(f"{name}: {'the same' if not found else f'{len(found)} differences'}")
        for text in found[:5]:
            print(f"  {text}")
        different += len(found)
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
