# SPDX-License-Identifier: Apache-2.0
"""What the writer's memory grows to beside a reader that is far too slow."""

from __future__ import annotations

import functools
from pathlib import Path

from tests.bench.engines import Engine, bp5, forebay_plugin, sst
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.programs import run_pair
from tests.bench.workbench import MIB, Workbench

__all__ = ["slow_reader_memory"]

_BYTES = 16 * MIB
_PACE_US = 20_000
#: The reader takes ten times as long for each step as the writer.
_READER_PAUSE_US = 10 * _PACE_US


def slow_reader_memory() -> Suite:
    """16 MiB each 20 ms, a reader that takes 200 ms for each step."""
    what = "writer's peak memory beside its data, reader 10 x too slow"
    figure = "writer_peak_bytes"
    return Suite(
        name="memory",
        cases=[
            Case("forebay", functools.partial(_forebay, 1)),
            Case("forebay, twice the steps", functools.partial(_forebay, 2)),
            Case("bp5", _bp5),
            Case("sst", _sst),
        ],
        rows=[
            Row(what, "BP5", "forebay", "bp5", figure, 1.0),
            Row(what, "SST", "forebay", "sst", figure, 1.0),
            # A tenth for what does not depend on the steps.
            Row("the same, twice the steps", "the steps above", "forebay, twice the steps", "forebay", figure, 0.9),
            Row("the same, our server's added", "SST", "forebay", "sst", "all_peak_bytes", None, figure),
        ],
        repetitions=3,
        repetitions_quick=1,
        best_of=1,
    )


def _run(engine: Engine, bench: Workbench, times: int = 1) -> Figures:
    steps = times * bench.steps(60, 30)
    slow = ["--pause-us", str(_READER_PAUSE_US)]
    with (
        engine.writer(variable_bytes=_BYTES, steps=steps, pace_us=_PACE_US) as writer,
        engine.reader(variable_bytes=_BYTES, more=slow) as reader,
    ):
        written, read = run_pair(writer, reader)
    if len(read.steps) != steps:
        raise RuntimeError(f"the reader got {len(read.steps)} of {steps} steps")
    return {"writer_peak_bytes": written.rss_max_bytes - _BYTES, "reader_peak_bytes": read.rss_max_bytes - _BYTES}


def _forebay(times: int, bench: Workbench) -> Figures:
    with bench.instance(140 * _BYTES) as instance:
        figures = _run(forebay_plugin(instance, "RendezvousReaderCount=1"), bench, times)
        status = Path(f"/proc/{instance.server.pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    figures["server_peak_bytes"] = 1024.0 * int(peak.split()[1])
    figures["all_peak_bytes"] = figures["writer_peak_bytes"] + figures["server_peak_bytes"]
    return figures


def _bp5(bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        return _run(bp5(folder, tuned=False), bench)


def _sst(bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        return _run(sst(folder, nodelay=True), bench)
