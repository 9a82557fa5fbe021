# SPDX-License-Identifier: Apache-2.0
"""Builds the program, writes one array by four methods of MPI-IO, compares the files, and prints a table.

    forebay up
    python examples/24_patterns/patterns.py

It needs MPICH (Debian: mpich, libmpich-dev). Without ``--folder`` it writes into a reservation of its own.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import forebay

HERE = Path(__file__).parent
RANKS = 4
METHODS = ("file-per-process", "independent", "sieving", "collective 1", "collective 2", "collective 4")


@dataclass(frozen=True)
class Result:
    """What one method did, of all ranks and steps together."""

    method: str
    seconds: float
    writes: int
    written_bytes: int
    reads: int


def expected(step: int, rows: int, columns: int) -> np.ndarray:
    """The array that the program writes in a step."""
    return step + np.arange(rows * columns, dtype=np.float64).reshape(rows, columns)


def run(program: Path, folder: Path, method: str, steps: int, rows: int, columns: int) -> Result:
    """Writes all steps by one method into an empty folder, and compares every number that was written."""
    folder.mkdir()
    name, _, aggregators = method.partition(" ")
    numbers = [str(number) for number in (steps, rows, columns)] + ([aggregators] if aggregators else [])
    ranks = ["mpiexec.mpich", "-n", str(RANKS), str(program), name, str(folder)]
    printed = subprocess.run([*ranks, *numbers], check=True, stdout=subprocess.PIPE, text=True).stdout
    seconds, writes, written_bytes, reads = printed.split()
    for step in range(steps):
        wanted = expected(step, rows, columns)
        if name == "file-per-process":
            files = [folder / f"step.{step:03d}.rank.{rank:03d}" for rank in range(RANKS)]
            found = np.concatenate([np.fromfile(file).reshape(rows, columns // RANKS) for file in files], axis=1)
        else:
            found = np.fromfile(folder / f"step.{step:03d}").reshape(rows, columns)
        if not np.array_equal(found, wanted):
            raise SystemExit(f"{method}, step {step}: the file does not have what was written")
    return Result(method, float(seconds), int(writes), int(written_bytes), int(reads))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--columns", type=int, default=1024, help="each rank has a quarter of them")
    parser.add_argument("--folder", type=Path, help="write there instead, for example on a parallel file system")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    size = chosen.steps * chosen.rows * chosen.columns * 8
    folder = chosen.folder
    if folder is None:
        command = [sys.executable, "-P", "-m", "forebay"]
        create = [*command, "create", "patterns", "--capacity", "0", "--files", str(2 * size)]
        subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
        with forebay.Admin() as admin:
            folder = Path(admin.reservation("patterns").files_path)
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "patterns"
        subprocess.run(["mpicc.mpich", "-O2", "-o", program, HERE / "patterns.c"], check=True)
        for method in METHODS:
            place = folder / method.replace(" ", "-")
            shutil.rmtree(place, ignore_errors=True)
            results.append(run(program, place, method, chosen.steps, chosen.rows, chosen.columns))
            shutil.rmtree(place)
    if chosen.json:
        print(json.dumps([vars(result) for result in results]))
        return
    print(f"{'method':17} {'MB/s':>6} {'ratio':>6} {'writes':>7} {'of KiB':>8} {'written':>8} {'reads':>6}")
    for result in results:
        print(
            f"{result.method:17} {size / result.seconds / 1e6:6.0f} {results[0].seconds / result.seconds:6.2f} "
            f"{result.writes:7} {result.written_bytes / result.writes / 1024:8.0f} {result.written_bytes / size:7.1f}x "
            f"{result.reads:6}"
        )


if __name__ == "__main__":
    main()
