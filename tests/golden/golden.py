"""What the generators of golden files share: where a file goes, how numbers are written."""

import argparse
import json
import platform
import struct
from importlib.metadata import version
from pathlib import Path


def output_folder(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "values",
                        help="folder to write to (the committed one)")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def versions(*packages):
    found = {name: version(name) for name in packages}
    return {"python": platform.python_version(), **found}


def words(values):
    """fp32 values as their bits: 8 hexadecimal digits each, one after the other."""
    return "".join(struct.pack(">f", float(x)).hex() for x in values)


def write(path, content):
    """Objects and lists of objects one entry a line, so that files can be read and compared."""

    def lines(value, indent):
        if isinstance(value, dict) and any(isinstance(v, (dict, list)) for v in value.values()):
            return block("{}", [json.dumps(k) + ": " + lines(v, indent + 1)
                                for k, v in value.items()], indent)
        if isinstance(value, list) and any(isinstance(v, (dict, list)) for v in value):
            return block("[]", [lines(v, indent + 1) for v in value], indent)
        return json.dumps(value, allow_nan=False)

    def block(brackets, entries, indent):
        inner = ",\n".join(" " * (indent + 1) + entry for entry in entries)
        return brackets[0] + "\n" + inner + "\n" + " " * indent + brackets[1]

    path.write_text(lines(content, 0) + "\n")
    print(f"{path}: {path.stat().st_size} bytes")
