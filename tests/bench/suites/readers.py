# SPDX-License-Identifier: Apache-2.0
"""What readers cost the writer: its steps with several paced readers and with one that is stopped."""

from __future__ import annotations

import contextlib
import functools
import statistics

from tests.bench.engines import forebay_plugin
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.workbench import MIB, Workbench

__all__ = ["paced_readers"]

_BYTES = 16 * MIB
#: Eight readers of a step each 100 ms copy 1.3 GB/s together: less than half a core.
_PACE_US = 100_000
#: Space goes round only once the flusher (every 500 ms) has made the first drops durable.
_WARMUP = 16


def paced_readers() -> Suite:
    """A writer of 16 MiB each 100 ms in recycled space, alone and with readers."""
    cases = [Case("alone", functools.partial(_run, 0, False))]
    rows: list[Row] = []
    for readers in (1, 4, 8):
        cases.append(Case(f"{readers} readers", functools.partial(_run, readers, False)))
    cases.append(Case("1 stopped", functools.partial(_run, 1, True)))
    for case in cases[1:]:
        for figure, name in (("step_seconds", "median"), ("step_longest_seconds", "longest")):
            # At most 1.1 times as long.
            what = f"writer's {name} step, {case.name}"
            rows.append(Row(what, "no readers", case.name, "alone", figure, 1 / 1.1, guarded=name != "longest"))
    return Suite("readers", cases, rows, best_of=1)


def _run(readers: int, stopped: bool, bench: Workbench) -> Figures:
    steps = bench.steps(50, 25) + _WARMUP
    with bench.instance(64 * _BYTES) as instance, contextlib.ExitStack() as stack:
        engine = forebay_plugin(instance, "Retention=last:4", f"RendezvousReaderCount={readers}")
        writer = stack.enter_context(engine.writer(variable_bytes=_BYTES, steps=steps, pace_us=_PACE_US))
        following = [stack.enter_context(engine.reader(variable_bytes=_BYTES)) for _ in range(readers)]
        for program in (writer, *following):
            program.wait_ready()
        for program in (*following, writer):
            program.go()
        if stopped:
            following[0].stop_and_continue(3.0)
        written = writer.finish()
        read = [reader.finish() for reader in following]
    seconds = written.seconds(0, 3, _WARMUP)
    return {
        "step_seconds": statistics.median(seconds),
        "step_longest_seconds": max(seconds),
        "readers_cpu_seconds": sum(timeline.cpu_seconds for timeline in read),
    }
