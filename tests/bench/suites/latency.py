# SPDX-License-Identifier: Apache-2.0
"""How soon a waiting reader holds a small step."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from pathlib import Path

from tests.bench.engines import Engine, bp5, forebay_plugin, sst
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.programs import Timeline, run_pair
from tests.bench.workbench import KIB, MIB, Workbench

__all__ = ["small_step_latency"]

_BYTES = 4 * KIB
_PACE_US = 2000


def small_step_latency() -> Suite:
    """4 KiB every 2 ms, from EndStep's return (and from its call) to the data in the reader's memory."""
    tuned_bp5: Callable[[Path], Engine] = functools.partial(bp5, tuned=True)
    tuned_sst: Callable[[Path], Engine] = functools.partial(sst, nodelay=True)
    returned, called = "after_return_seconds", "after_call_seconds"
    return Suite(
        name="latency",
        cases=[
            Case("forebay", _forebay),
            Case("sst nodelay", functools.partial(_peer, tuned_sst)),
            Case("bp5 tuned", functools.partial(_peer, tuned_bp5)),
        ],
        rows=[
            Row("4 KiB step, EndStep's return to data", "SST NODELAY", "forebay", "sst nodelay", returned, 2.0),
            Row("4 KiB step, EndStep's return to data", "BP5 1 ms poll", "forebay", "bp5 tuned", returned, 8.0),
            Row("4 KiB step, EndStep's call to data", "SST NODELAY", "forebay", "sst nodelay", called),
            Row("4 KiB step, EndStep's call to data", "BP5 1 ms poll", "forebay", "bp5 tuned", called),
            Row("4 KiB step, writer", "SST NODELAY", "forebay", "sst nodelay", "writer_seconds"),
            Row("4 KiB step, writer", "BP5 1 ms poll", "forebay", "bp5 tuned", "writer_seconds"),
        ],
        repetitions=7,
    )


def _figures(writer: Timeline, reader: Timeline) -> Figures:
    if len(reader.steps) != len(writer.steps):
        raise RuntimeError(f"the reader got {len(reader.steps)} of {len(writer.steps)} steps")
    pairs = list(zip(writer.steps, reader.steps, strict=True))
    # A reader may hold the step before EndStep has returned to the writer; as a ratio's part that is 1 microsecond.
    after_return = statistics.median(read[2] - written[3] for written, read in pairs) * 1e-9
    after_call = statistics.median(read[2] - written[2] for written, read in pairs) * 1e-9
    return {
        "after_return_seconds": max(after_return, 1e-6),
        "after_return_measured_seconds": after_return,
        "after_call_seconds": after_call,
        "writer_seconds": writer.step_seconds(),
    }


def _run(engine: Engine, bench: Workbench) -> Figures:
    steps = bench.steps(500, 200)
    with (
        engine.writer(variable_bytes=_BYTES, steps=steps, pace_us=_PACE_US) as writer,
        engine.reader(variable_bytes=_BYTES) as reader,
    ):
        return _figures(*run_pair(writer, reader))


def _forebay(bench: Workbench) -> Figures:
    with bench.instance(256 * MIB) as instance:
        return _run(forebay_plugin(instance, "RendezvousReaderCount=1"), bench)


def _peer(make: Callable[[Path], Engine], bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        return _run(make(folder), bench)
