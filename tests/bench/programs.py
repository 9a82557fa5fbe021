# SPDX-License-Identifier: Apache-2.0
"""The native programs of the benchmarks: started, held until all of a case are ready, and read."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["Program", "Timeline", "build_directory", "rate_together", "run_alone", "run_pair", "run_together"]

#: Longer than any case takes; a program that hangs is killed then.
_LIFETIME_SECONDS_MAX = 300.0


def build_directory() -> Path:
    """Where CMake built: ``$FOREBAY_BUILD_DIR``, which ``./run bench`` sets."""
    named = os.environ.get("FOREBAY_BUILD_DIR")
    if not named:
        raise SystemExit("FOREBAY_BUILD_DIR does not say where the benchmark programs are; start them by ./run bench")
    return Path(named)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What a program reports. Times are of the monotonic clock, the same in all processes."""

    #: For each step four moments in nanoseconds. Writer: begin called, begin returned, last put returned, end returned.
    #: Reader: begin called, begin returned, data held, end returned.
    steps: list[list[int]]
    values: Mapping[str, float]
    user_seconds: float
    system_seconds: float
    rss_max_bytes: int

    @property
    def cpu_seconds(self) -> float:
        """Processor time from the program's start to its end."""
        return self.user_seconds + self.system_seconds

    def seconds(self, first: int, last: int, warmup: int = 0) -> list[float]:
        """From moment ``first`` to moment ``last`` of each step after the first ``warmup``."""
        return [(step[last] - step[first]) * 1e-9 for step in self.steps[warmup:]]

    def step_seconds(self, warmup: int = 0) -> float:
        """Median of whole steps."""
        return statistics.median(self.seconds(0, 3, warmup))

    def run_seconds(self, warmup: int = 0) -> float:
        """From the begin of the first step after the warm-up to the end of closing."""
        return (self.values["closed_ns"] - self.steps[warmup][0]) * 1e-9

    def rate(self, step_bytes: int, warmup: int = 0) -> float:
        """Bytes a second from the begin of the first step after the warm-up to the end of the last."""
        seconds = (self.steps[-1][3] - self.steps[warmup][0]) * 1e-9
        return (len(self.steps) - warmup) * step_bytes / seconds


class Program:
    """A started program; it waits for :meth:`go` once it is ready. A context manager, which kills what still runs."""

    def __init__(
        self,
        name: str,
        arguments: Iterable[str | Path],
        environment: Mapping[str, str],
        *,
        prefix: Sequence[str] = (),
    ) -> None:
        program = build_directory() / "tests" / "bench" / name
        if not program.is_file():
            raise SystemExit(f"{program} is missing; build with -DFOREBAY_BUILD_BENCHMARKS=ON (./run bench does)")
        self._name = f"{name} {' '.join(map(str, arguments))}"
        self._process = subprocess.Popen(
            [*prefix, program, *arguments],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._watchdog = threading.Timer(_LIFETIME_SECONDS_MAX, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Returns when everything that it needs is open."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "ready\n":
                return
        self._fail()

    def go(self) -> None:
        """Lets it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def finish(self) -> Timeline:
        """Waits for its end and reads what it reports."""
        output, errors = self._process.communicate()
        self._watchdog.cancel()
        if self._process.returncode != 0:
            raise RuntimeError(f"{self._name} ended with status {self._process.returncode}: {errors.strip()}")
        report = json.loads(output.splitlines()[-1])
        return Timeline(
            steps=report["steps"],
            values=report["values"],
            user_seconds=report["user_seconds"],
            system_seconds=report["system_seconds"],
            rss_max_bytes=report["rss_max_bytes"],
        )

    def kill(self) -> int:
        """It dies without a word; returns the moment, of the monotonic clock in nanoseconds."""
        moment = time.monotonic_ns()
        self._process.kill()
        return moment

    def stop_and_continue(self, seconds: float) -> None:
        """Stops the process now, and lets it go on after some time."""
        self._process.send_signal(signal.SIGSTOP)
        timer = threading.Timer(seconds, self._process.send_signal, [signal.SIGCONT])
        timer.daemon = True
        timer.start()

    def _fail(self) -> None:
        _, errors = self._process.communicate()
        self._watchdog.cancel()
        raise RuntimeError(f"{self._name} ended before it was ready: {errors.strip()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._watchdog.cancel()
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def run_alone(program: Program) -> Timeline:
    """Lets it begin once it is ready."""
    program.wait_ready()
    program.go()
    return program.finish()


def run_pair(writer: Program, reader: Program) -> tuple[Timeline, Timeline]:
    """Lets both begin once both are ready; the reader first, so that it is waiting already."""
    writer.wait_ready()
    reader.wait_ready()
    reader.go()
    writer.go()
    return writer.finish(), reader.finish()


def run_together(programs: Sequence[Program]) -> list[Timeline]:
    """Lets all begin once all are ready."""
    for program in programs:
        program.wait_ready()
    for program in programs:
        program.go()
    return [program.finish() for program in programs]


def rate_together(timelines: Sequence[Timeline], step_bytes: int, warmup: int = 0) -> float:
    """Bytes a second of all programs: as :meth:`Timeline.rate`, from the first one's begin to the last one's end.

    The sum of their own rates would be too high where they do not run at the same time.
    """
    begin = min(timeline.steps[warmup][0] for timeline in timelines)
    end = max(timeline.steps[-1][3] for timeline in timelines)
    steps = sum(len(timeline.steps) - warmup for timeline in timelines)
    return steps * step_bytes / ((end - begin) * 1e-9)
