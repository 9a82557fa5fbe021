# SPDX-License-Identifier: Apache-2.0
"""The calls that Slurm makes while it holds its locks, with 1000 jobs in the books while reservations are made."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.workbench import GIB, Workbench
from tests.support.instance import CommandLineInstance
from tests.support.slurm_calls import SlurmCalls

__all__ = ["locked_calls"]

_SECONDS_ASKED = 10e-3
_CALLS = ("pools", "show_sessions", "show_instances", "job_process", "paths", "dwstat")


def locked_calls() -> Suite:
    """The 99th percentile of each."""
    return Suite(
        name="slurm-calls",
        cases=[Case("calls", _calls)],
        rows=[
            Row(f"{name}, 99th of 1000, 1000 jobs", "10 ms", "calls", _SECONDS_ASKED, f"{name}_seconds", 1.0)
            for name in _CALLS
        ],
        repetitions=1,
        repetitions_quick=1,
        best_of=1,
    )


def _calls(bench: Workbench) -> Figures:
    count = bench.steps(1000, 200)
    with bench.scratch() as folder:
        instance = CommandLineInstance(folder / "root", capacity=str(64 * GIB))
        # Files alone: nothing is preallocated for them.
        slurm = SlurmCalls(folder, instance, "streams_share = 0.0")
        with instance:
            script = slurm.script("#DW jobdw capacity=16MiB access_mode=striped type=scratch")
            for number in range(1, count + 1):
                slurm.set_up(str(number), script, "forebay:16MiB")
            commands = {name: slurm.command(name) for name in _CALLS if name != "dwstat"}
            commands["job_process"] += ["--job", str(script)]
            commands["paths"] += ["--token", str(count), "--pathfile", str(folder / "path")]
            commands["dwstat"] = [str(Path(commands["pools"][0]).with_name("dwstat")), "most"]
            with _reservations_being_made(instance):
                return {
                    f"{name}_seconds": _percentile_99(command, slurm.environment, count)
                    for name, command in commands.items()
                }


@contextlib.contextmanager
def _reservations_being_made(instance: CommandLineInstance) -> Iterator[None]:
    """One after another, as large as it takes the server a while to make."""
    over = threading.Event()

    def make() -> None:
        while not over.is_set():
            with instance.manager() as manager:
                manager.create("large", 2 * GIB, persistent=False)
                manager.destroy("large", force=True)

    maker = threading.Thread(target=make)
    maker.start()
    try:
        yield
    finally:
        over.set()
        maker.join()


def _percentile_99(command: Sequence[str], environment: dict[str, str], count: int) -> float:
    seconds = []
    with open(os.devnull, "wb") as nowhere:
        for _ in range(count):
            began = time.perf_counter()
            subprocess.run(command, env=environment, stdout=nowhere, check=True)
            seconds.append(time.perf_counter() - began)
    return sorted(seconds)[count * 99 // 100 - 1]
