# SPDX-License-Identifier: Apache-2.0
"""Copies the inputs that reach most, from what libFuzzer wrote while merging: pick_fuzz_inputs.py CONTROL_FILE FOLDER.

Each pick is the input that adds most to what those before it reach; smaller inputs first among equals.
"""

import shutil
import sys
from hashlib import sha1
from pathlib import Path

INPUTS_MAX = 150
BYTES_MAX = 300 << 10


def read_control_file(control_file: Path) -> dict[Path, set[int]]:
    """What each input reaches, as numbers that mean something to libFuzzer only."""
    lines = control_file.read_text(errors="replace").splitlines()
    count = int(lines[0])
    paths = [Path(line) for line in lines[2 : 2 + count]]
    reached = {}
    for line in lines[2 + count :]:
        kind, number, *features = line.split()
        if kind == "FT":
            reached[paths[int(number)]] = {int(feature) for feature in features}
    return reached


def pick(reached: dict[Path, set[int]]) -> list[Path]:
    """The inputs in the order of their worth."""
    picked: list[Path] = []
    left = dict(reached)
    sizes = {path: path.stat().st_size for path in left}
    size = 0
    while left and len(picked) < INPUTS_MAX:
        best = max(left, key=lambda path: (len(left[path]), -sizes[path]))
        new = left.pop(best)
        if not new:
            break
        if size + sizes[best] > BYTES_MAX:
            continue
        size += sizes[best]
        picked.append(best)
        left = {path: features - new for path, features in left.items()}
    return picked


def main(control_file: Path, folder: Path) -> None:
    """Names each copy after its content, as libFuzzer does."""
    for path in pick(read_control_file(control_file)):
        name = sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
        shutil.copyfile(path, folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
