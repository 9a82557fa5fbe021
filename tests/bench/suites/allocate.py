# SPDX-License-Identifier: Apache-2.0
"""Computing in place: what the end of a step costs there, and how fast the memory fills."""

from __future__ import annotations

import functools
import statistics
import time

import numpy as np

import forebay
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.programs import Program, run_alone
from tests.bench.workbench import MIB, Workbench

__all__ = ["allocated_steps"]

_BYTES = 64 * MIB
_WARMUP = 6
_BARE = ("--without-checksums", "--without-statistics")
_NEVER = ("--flush-interval-ms", "-1")


def allocated_steps() -> Suite:
    """EndStep of 64 MiB that were computed in place, against checksum and statistics of as many bytes in memory."""
    return Suite(
        name="allocate",
        cases=[
            Case("digest", _digest),
            Case("native", functools.partial(_native, (), ())),
            Case("native, flusher off", functools.partial(_native, (), _NEVER)),
            Case("native bare", functools.partial(_native, _BARE, ())),
            Case("put", functools.partial(_native, (), (), in_place=False)),
            Case("python", _python),
        ],
        rows=[
            Row("EndStep of 64 MiB allocated, C++", "checksum, statistics", "native", "digest", "end_seconds", 0.8),
            Row("EndStep of 64 MiB allocated, Python", "checksum, statistics", "python", "digest", "end_seconds", 0.8),
            Row("EndStep of 64 MiB allocated, neither", "1 ms", "native bare", 1e-3, "end_seconds"),
            Row("fill of 64 MiB by allocate", "flusher off", "native", "native, flusher off", "fill_bytes_per_second"),
            Row("allocate, fill, EndStep of 64 MiB", "Put of 64 MiB", "native", "put", "step_seconds"),
        ],
    )


def _digest(bench: Workbench) -> Figures:
    steps = bench.steps(20, 8)
    with Program("bench_native", ["digest", "--bytes", str(_BYTES), "--steps", str(steps)], {}) as program:
        timeline = run_alone(program)
    return {"end_seconds": statistics.median(timeline.seconds(2, 3))}


def _native(
    options: tuple[str, ...], server_options: tuple[str, ...], bench: Workbench, *, in_place: bool = True
) -> Figures:
    steps = bench.steps(16, 6) + _WARMUP
    with bench.instance((steps + 4) * _BYTES, *server_options) as instance:
        arguments = ["write", "--address", instance.address(), "--bytes", str(_BYTES), "--steps", str(steps)]
        arguments += ["--retention", "last:2", *options]
        if in_place:
            arguments.append("--allocate")
        with Program("bench_native", arguments, instance.environment) as writer:
            timeline = run_alone(writer)
    return {
        "end_seconds": statistics.median(timeline.seconds(2, 3, _WARMUP)),
        "fill_bytes_per_second": _BYTES / statistics.median(timeline.seconds(1, 2, _WARMUP)),
        "step_seconds": timeline.step_seconds(_WARMUP),
    }


def _python(bench: Workbench) -> Figures:
    steps = bench.steps(16, 6) + _WARMUP
    ends: list[float] = []
    with (
        bench.instance((steps + 4) * _BYTES) as instance,
        forebay.open(instance.address(), "w", retention="last:2") as stream,
    ):
        for number in range(steps):
            step = stream.step()
            array = step.allocate("v00000", (_BYTES // 8,), np.float64)
            array[:] = number
            del array
            began = time.perf_counter()
            step.end()
            ends.append(time.perf_counter() - began)
    return {"end_seconds": statistics.median(ends[_WARMUP:])}
