# SPDX-License-Identifier: Apache-2.0
"""How soon a waiting reader notices that its writer was killed."""

from __future__ import annotations

import time

from tests.bench.engines import Engine, forebay_plugin, sst
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.programs import Timeline
from tests.bench.workbench import KIB, MIB, Workbench

__all__ = ["lost_writer"]

_BYTES = 4 * KIB
#: The writer has written one step by then, and waits to write the next.
_IDLE_SECONDS = 1.0


def lost_writer() -> Suite:
    """One step of 4 KiB, then SIGKILL while the reader waits for the next one."""
    figure = "noticed_seconds"
    return Suite(
        name="lost_writer",
        cases=[Case("forebay", _forebay), Case("sst", _sst)],
        # At most twice as long.
        rows=[
            Row("death of the writer, noticed by a waiting reader (GraceSecs=0)", "SST", "forebay", "sst", figure, 0.5)
        ],
        repetitions=7,
        best_of=1,
    )


def _run(engine: Engine) -> Figures:
    with (
        engine.writer(variable_bytes=_BYTES, steps=100, pace_us=60_000_000) as writer,
        engine.reader(variable_bytes=_BYTES, more=["--until-lost"]) as reader,
    ):
        for program in (writer, reader):
            program.wait_ready()
        for program in (reader, writer):
            program.go()
        time.sleep(_IDLE_SECONDS)
        killed_ns = writer.kill()
        read: Timeline = reader.finish()
    return {"noticed_seconds": (read.values["noticed_ns"] - killed_ns) * 1e-9}


def _forebay(bench: Workbench) -> Figures:
    with bench.instance(256 * MIB) as instance:
        # Without grace: nothing is waited for but the news.
        return _run(forebay_plugin(instance, "RendezvousReaderCount=1", "GraceSecs=0"))


def _sst(bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        return _run(sst(folder, nodelay=True))
