# SPDX-License-Identifier: Apache-2.0
"""The weather example's workflow under a real Snakemake: started, watched at each change of a file, killed, judged."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import forebay
from tests.support.example_programs import EXAMPLES
from tests.support.file_changes import Accident, library
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.snakemake import PYTHON
from tests.support.time_limits import seconds

__all__ = ["CYCLES", "HOURS", "WeatherWorkflow", "hours_module", "watched"]

CYCLES, HOURS, GRID, STEPS = 2, 2, 32, 2
_WEATHER = EXAMPLES / "28_weather"


def hours_module(example: Path = _WEATHER) -> Any:
    """The example's module ``hours``."""
    sys.path.insert(0, str(example))
    try:
        return importlib.import_module("hours")
    finally:
        sys.path.remove(str(example))
        for name in ("hours", "model"):
            sys.modules.pop(name, None)


class WeatherWorkflow:
    """In a folder and a reservation of its own. A context manager: at the end both are gone, and all its processes."""

    def __init__(
        self,
        instance: CommandLineInstance,
        folder: Path,
        *,
        output: str = "files",
        aggregators: int = 2,
        reservation: str = "weather",
        example: Path = _WEATHER,
    ) -> None:
        self.folder = folder
        self.output = output
        self.aggregators = aggregators
        self.reservation = reservation
        self._instance = instance
        self._example = example
        self._told = folder / "told.txt"

    def __enter__(self) -> Self:
        self.folder.mkdir()
        self._instance.ask("create", self.reservation, "--capacity", "16MiB", "--files", "16MiB")
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        until(lambda: not self.processes(), "all processes of the workflow have ended")
        self._instance.ask("destroy", self.reservation, "--force")
        shutil.rmtree(self.folder)

    def start(
        self, *arguments: str, environment: dict[str, str] | None = None, timeout: float = 60, **settings: object
    ) -> subprocess.Popen[bytes]:
        """Snakemake, which leads a session of its own."""
        settings = {
            "python": PYTHON,
            "output": self.output,
            "reservation": self.reservation,
            "cycles": CYCLES,
            "hours": HOURS,
            "grid": GRID,
            "steps": STEPS,
            "aggregators": self.aggregators,
            "timeout": seconds(timeout),
        } | settings
        command = [str(PYTHON), "-m", "snakemake", "--snakefile", str(self._example / "Snakefile"), "--cores", "2"]
        # Without a lock of the folder, a run after a kill needs no run that unlocks it, which takes as long; and the
        # other scheduler would start a solver each time that it looks for jobs.
        command += [
            "--nolock",
            "--scheduler",
            "greedy",
            *arguments,
            "--config",
            *(f"{name}={value}" for name, value in settings.items()),
        ]
        with self._told.open("ab") as told:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=os.environ | self._instance.environment | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                start_new_session=True,
            )

    def finish(self) -> None:
        """Runs it to its end, whatever was there before."""
        assert self.start("--rerun-incomplete").wait(seconds(240)) == 0, self.told()

    def told(self) -> str:
        """What Snakemake and all of its jobs have said."""
        return self._told.read_text()

    def results(self) -> dict[str, bytes]:
        """Tables and products."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for pattern in ("cycle*/*.csv", "cycle*/products/*.npz")
            for path in sorted(self.folder.glob(pattern))
        }

    def processed(self, cycle: int) -> list[int]:
        """Hours of a cycle in the order in which they were post-processed."""
        return [int(line) for line in (self.folder / f"cycle{cycle}/processed.log").read_text().split()]

    def check_hours(self) -> int:
        """Every hour that has its name is whole; how many there are."""
        found = 0
        hours = hours_module(self._example)
        for cycle in range(CYCLES):
            if self.output == "stream":
                at = hours.hours_at(f"stream:{self.reservation}/cycle{cycle}")
            else:
                at = hours.hours_at(f"files:{self.reservation}:cycle{cycle}")
            there = self.hours_there(cycle)
            for hour in there:
                assert at.read(hour).shape == (4, GRID, GRID), f"cycle {cycle}, hour {hour} is not whole"
            assert there == list(range(len(there)))
            found += len(there)
        return found

    def hours_folder(self, cycle: int) -> Path:
        """Where a forecast's hours appear as files."""
        with forebay.Admin() as admin:
            return Path(admin.reservation(self.reservation).files_path) / f"cycle{cycle}"

    def hours_there(self, cycle: int) -> list[int]:
        """Those of a forecast that have their names."""
        if self.output == "files":
            return sorted(int(path.name[4:]) for path in self.hours_folder(cycle).glob("hour???"))
        with forebay.Admin() as admin:
            try:
                return [step.number for step in admin.steps(f"{self.reservation}/cycle{cycle}")]
            except forebay.NotFoundError:
                return []

    def processes(self, words: str = "", *, is_child_of_flock: bool = False) -> list[int]:
        """Those that work in its folder and have these words on their command line."""
        found = {pid: line for pid, line in self._command_lines() if words in line}
        if is_child_of_flock:
            return [pid for pid in found if found.get(_parent(pid), "").startswith("flock")]
        return list(found)

    def _command_lines(self) -> Iterator[tuple[int, str]]:
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdecimal() and (process / "cwd").readlink() == self.folder:
                    yield int(process.name), (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue


def _parent(pid: int) -> int:
    """0 when the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


@contextmanager
def watched(
    watched_folder: Path, pipe: Path, heard: Callable[[str], None], accident: Accident | None = None
) -> Iterator[dict[str, str]]:
    """The environment in which all processes tell each change that they make to files, as it begins; and the one that
    comes to the accident first has it.
    """
    os.mkfifo(pipe)
    token = pipe.with_suffix(".token")
    # With a writer of its own, so that it never ends; and nobody who writes waits for a reader.
    descriptor = os.open(pipe, os.O_RDWR)

    def listen() -> None:
        with os.fdopen(descriptor, closefd=False, newline="\n") as lines:
            for line in lines:
                if line == "the end\n":
                    return
                heard(line.rstrip("\n"))

    values: list[object] = [watched_folder, pipe, "", 0, 0, token]
    if accident:
        token.touch()
        change = accident.change
        values[2:5] = [f"{change.kind} {change.path}", change.occurrence, int(accident.moment)]
    listener = threading.Thread(target=listen)
    listener.start()
    try:
        yield {"LD_PRELOAD": str(library()), "FOREBAY_WATCH_CHANGES": "\n".join(map(str, values))}
    finally:
        os.write(descriptor, b"the end\n")
        listener.join()
        os.close(descriptor)
        pipe.unlink()
        token.unlink(missing_ok=True)
