# SPDX-License-Identifier: Apache-2.0
"""Staging files and trees in, verified and synced, against the tools of the system."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from forebay.manager.jobs import FilesJob
from forebay.workflows.staging.files import stage_files
from forebay.workflows.staging.reporting import JsonReporter
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.workbench import GIB, KIB, MIB, RESERVATION, Workbench

__all__ = ["staged_large_file", "staged_trees"]

_FILES_IN_FOLDER = 1000
_CAPACITY_BYTES = 64 * MIB


def staged_trees() -> list[Suite]:
    """3 000 files of 1 KiB, 100 000 files of 4 KiB."""
    return [_staged_tree(3_000, KIB, 1.0, repetitions=5), _staged_tree(100_000, 4 * KIB, 1.2, repetitions=3)]


def staged_large_file() -> Suite:
    """One of 4 GiB."""
    what = "stage-in of a 4 GiB file, verified, synced"

    def make(folder: Path) -> Path:
        path = folder / "large"
        with path.open("wb") as file:
            piece = os.urandom(16 * MIB)
            for _ in range(4 * GIB // len(piece)):
                file.write(piece)
        return path

    def copy(source: Path, target: Path) -> None:
        subprocess.run(["cp", source, target], check=True)
        subprocess.run(["sync"], check=True)
        subprocess.run(["cmp", source, target], check=True)

    return _suite("staging-large", what, "cp + sync + cmp", make, copy, 0.9, repetitions=3)


def _staged_tree(count: int, size_bytes: int, target: float, *, repetitions: int) -> Suite:
    what = f"stage-in of {count} files of {size_bytes // KIB} KiB, verified, synced"

    def make(folder: Path) -> Path:
        top = folder / "tree"
        content = os.urandom(size_bytes)
        for number in range(count):
            parent = top / str(number // _FILES_IN_FOLDER)
            if number % _FILES_IN_FOLDER == 0:
                parent.mkdir(parents=True)
            (parent / str(number)).write_bytes(content)
        return top

    def copy(source: Path, target: Path) -> None:
        subprocess.run(["cp", "-a", source, target], check=True)
        subprocess.run(["sync"], check=True)

    return _suite(f"staging-{count}", what, "cp -a + sync", make, copy, target, repetitions=repetitions)


def _suite(
    name: str,
    what: str,
    against: str,
    make: Callable[[Path], Path],
    copy: Callable[[Path, Path], None],
    target: float,
    *,
    repetitions: int,
) -> Suite:
    def ours(bench: Workbench) -> Figures:
        with bench.instance(_CAPACITY_BYTES), bench.scratch() as folder:
            source = make(folder)
            os.sync()
            began = time.monotonic()
            stage_files(FilesJob(RESERVATION, "copy", str(source), inward=True), JsonReporter(io.StringIO()))
            return {"stage_seconds": time.monotonic() - began}

    def peer(bench: Workbench) -> Figures:
        with bench.scratch() as folder:
            source = make(folder)
            os.sync()
            began = time.monotonic()
            copy(source, folder / "copy")
            seconds = time.monotonic() - began
            shutil.rmtree(folder / "copy", ignore_errors=True)
            return {"stage_seconds": seconds}

    return Suite(
        name=name,
        cases=[Case("forebay", ours), Case("system", peer)],
        rows=[Row(what, against, "forebay", "system", "stage_seconds", target)],
        repetitions=repetitions,
        repetitions_quick=1,
        best_of=1,
    )
