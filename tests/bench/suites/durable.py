# SPDX-License-Identifier: Apache-2.0
"""Steps that survive power loss when EndStep returns."""

from __future__ import annotations

import statistics
from pathlib import Path

from tests.bench.engines import forebay_plugin
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.programs import Program, Timeline, run_alone
from tests.bench.workbench import MIB, Workbench

__all__ = ["durable_steps"]

_BYTES = 64 * MIB


def durable_steps() -> Suite:
    """64 MiB steps, each synced, against pwrite and fdatasync."""
    return Suite(
        name="durable",
        cases=[Case("forebay", _forebay), Case("raw", _raw)],
        rows=[Row("durable 64 MiB steps", "pwrite + fdatasync", "forebay", "raw", "run_bytes_per_second", 0.9)],
    )


def _steps(bench: Workbench) -> int:
    return bench.steps(12, 5)


def _figures(timeline: Timeline) -> Figures:
    return {
        "run_bytes_per_second": len(timeline.steps) * _BYTES / ((timeline.steps[-1][3] - timeline.steps[0][0]) * 1e-9),
        "median_bytes_per_second": _BYTES / timeline.step_seconds(),
        "put_seconds": statistics.median(timeline.seconds(0, 2)),
        "sync_seconds": statistics.median(timeline.seconds(2, 3)),
    }


def _forebay(bench: Workbench) -> Figures:
    steps = _steps(bench)
    with bench.instance((steps + 4) * _BYTES) as instance:
        engine = forebay_plugin(instance, "Durability=durable")
        with engine.writer(variable_bytes=_BYTES, steps=steps) as writer:
            return _figures(run_alone(writer))


def _raw(bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        arguments: list[str | Path] = [
            "write",
            "--path",
            folder / "steps",
            "--bytes",
            str(_BYTES),
            "--steps",
            str(_steps(bench)),
            "--sync",
        ]
        with Program("bench_raw", arguments, {}) as writer:
            return _figures(run_alone(writer))
