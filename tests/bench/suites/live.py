# SPDX-License-Identifier: Apache-2.0
"""One writer and one live reader that copies everything: from the first BeginStep to the last data."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from tests.bench.engines import Engine, bp5, forebay_plugin, sst
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.programs import Timeline, run_pair
from tests.bench.workbench import MIB, Workbench

__all__ = ["live_reader"]

#: How far the writer can get ahead in a recycled stream, and how many steps go by before everything is recycled.
_RECYCLED_SLOTS = 6


def live_reader(step_bytes: int) -> Suite:
    """The suite for steps of one variable of this size."""
    size = f"{step_bytes // MIB} MiB"
    targets = {16: (1.4, 2.0, 1.5, 2.0), 64: (1.0, 2.0, 2.0, 3.5)}[step_bytes // MIB]
    bp5_name = "BP5 StatsLevel=0, 1 ms poll"
    figure = "end_to_end_bytes_per_second"
    tuned_bp5: Callable[[Path], Engine] = functools.partial(bp5, tuned=True)
    tuned_sst: Callable[[Path], Engine] = functools.partial(sst, nodelay=True)
    return Suite(
        name=f"live-{step_bytes // MIB}",
        cases=[
            Case("fresh", functools.partial(_forebay, step_bytes, False)),
            Case("recycled", functools.partial(_forebay, step_bytes, True)),
            Case("bp5 tuned", functools.partial(_peer, step_bytes, tuned_bp5)),
            Case("sst nodelay", functools.partial(_peer, step_bytes, tuned_sst)),
        ],
        rows=[
            Row(f"live reader {size}, fresh", bp5_name, "fresh", "bp5 tuned", figure, targets[0]),
            Row(f"live reader {size}, recycled", bp5_name, "recycled", "bp5 tuned", figure, targets[1]),
            Row(f"live reader {size}, fresh", "SST NODELAY", "fresh", "sst nodelay", figure, targets[2]),
            Row(f"live reader {size}, recycled", "SST NODELAY", "recycled", "sst nodelay", figure, targets[3]),
        ],
    )


def _steps(bench: Workbench, step_bytes: int) -> int:
    return bench.steps(512 * MIB // step_bytes + 8, 256 * MIB // step_bytes + 4)


def _figures(writer: Timeline, reader: Timeline, step_bytes: int, warmup: int) -> Figures:
    if len(reader.steps) != len(writer.steps):
        raise RuntimeError(f"the reader got {len(reader.steps)} of {len(writer.steps)} steps")
    seconds = (reader.steps[-1][2] - writer.steps[warmup][0]) * 1e-9
    return {
        "end_to_end_bytes_per_second": (len(writer.steps) - warmup) * step_bytes / seconds,
        "writer_step_seconds": writer.step_seconds(warmup),
        "writer_rss_bytes": float(writer.rss_max_bytes),
        "reader_rss_bytes": float(reader.rss_max_bytes),
    }


def _forebay(step_bytes: int, recycled: bool, bench: Workbench) -> Figures:
    warmup = 2 * _RECYCLED_SLOTS if recycled else 0
    steps = _steps(bench, step_bytes) + warmup
    slots = _RECYCLED_SLOTS if recycled else steps + 4
    # The reader gets every step in either case: where space is recycled, the stream keeps what it has not passed yet.
    kept = ("Retention=consumers:live",) if recycled else ()
    with bench.instance(slots * step_bytes + 32 * MIB) as instance:
        engine = forebay_plugin(instance, "RendezvousReaderCount=1", *kept, reader=("Consumer=live",))
        with (
            engine.writer(variable_bytes=step_bytes, steps=steps) as writer,
            engine.reader(variable_bytes=step_bytes) as reader,
        ):
            return _figures(*run_pair(writer, reader), step_bytes, warmup)


def _peer(step_bytes: int, make: Callable[[Path], Engine], bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        engine = make(folder)
        with (
            engine.writer(variable_bytes=step_bytes, steps=_steps(bench, step_bytes)) as writer,
            engine.reader(variable_bytes=step_bytes) as reader,
        ):
            return _figures(*run_pair(writer, reader), step_bytes, 0)
