# SPDX-License-Identifier: Apache-2.0
"""Many variables in a step and many steps in a stream, against BP5; and a server that starts on many steps."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import forebay
from tests.bench.engines import Engine, bp5, forebay_plugin
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.programs import Program, run_alone
from tests.bench.workbench import GIB, KIB, MIB, RESERVATION, Workbench

__all__ = ["many_steps", "many_variables", "restart"]

_VARIABLES = 10_000
_STEPS = 10_000


def many_variables() -> Suite:
    """10 000 variables of 64 bytes; the reader comes when all is written."""
    return Suite(
        name="variables",
        cases=[Case("forebay", _forebay_variables), Case("bp5", _bp5_variables)],
        rows=[
            Row("step of 10 000 variables, writer", "BP5 default", "forebay", "bp5", "writer_seconds", 2.0),
            Row("step of 10 000 variables, reader", "BP5 default", "forebay", "bp5", "reader_seconds", 2.0),
            Row("step of 10 000 variables, BeginStep", "BP5 default", "forebay", "bp5", "begin_seconds"),
            Row("step of 10 000 variables, all Gets", "BP5 default", "forebay", "bp5", "gets_seconds"),
        ],
    )


def many_steps() -> Suite:
    """10 000 steps of 4 KiB, opened for random access."""
    return Suite(
        name="steps",
        cases=[Case("forebay", _forebay_steps), Case("bp5", _bp5_steps)],
        rows=[
            Row("random-access Open of 10 000 steps", "BP5", "forebay", "bp5", "open_seconds", 2.0),
            Row("read of one of 10 000 steps", "BP5", "forebay", "bp5", "read_seconds"),
            Row("write of 10 000 steps of 4 KiB", "BP5 default", "forebay", "bp5", "write_seconds"),
        ],
        repetitions=3,
        repetitions_quick=1,
    )


def restart() -> Suite:
    """A killed server starts again on 100 000 committed steps."""
    return Suite(
        name="restart",
        cases=[Case("forebay", _restart)],
        rows=[Row("restart with 100 000 steps", "1 s", "forebay", 1.0, "start_seconds", 1.0)],
        repetitions=3,
        repetitions_quick=1,
        best_of=1,
    )


def _variables(engine: Engine, bench: Workbench) -> Figures:
    steps = bench.steps(10, 5)
    with engine.writer(variable_bytes=64, variables=_VARIABLES, steps=steps) as writer:
        written = run_alone(writer)
    with engine.reader(variable_bytes=64, variables=_VARIABLES) as reader:
        read = run_alone(reader)
    return {
        "writer_seconds": written.step_seconds(),
        "reader_seconds": read.step_seconds(),
        "begin_seconds": statistics.median(read.seconds(0, 1)),
        "gets_seconds": statistics.median(read.seconds(1, 2)),
        "puts_seconds": statistics.median(written.seconds(1, 2)),
        "end_seconds": statistics.median(written.seconds(2, 3)),
    }


def _forebay_variables(bench: Workbench) -> Figures:
    with bench.instance(256 * MIB) as instance:
        return _variables(forebay_plugin(instance), bench)


def _bp5_variables(bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        return _variables(bp5(folder, tuned=False), bench)


def _written_steps(engine: Engine) -> Figures:
    with engine.writer(variable_bytes=4 * KIB, steps=_STEPS) as writer:
        written = run_alone(writer)
    with engine.random_reader(variable_bytes=4 * KIB, steps=1000) as reader:
        read = run_alone(reader)
    if read.values["available"] != _STEPS:
        raise RuntimeError(f"{read.values['available']} of {_STEPS} steps are there")
    return {
        "open_seconds": read.values["open_seconds"],
        "read_seconds": statistics.median(read.seconds(0, 2)),
        "write_seconds": written.step_seconds(),
    }


def _forebay_steps(bench: Workbench) -> Figures:
    with bench.instance(256 * MIB) as instance:
        return _written_steps(forebay_plugin(instance, reader=("RandomAccess=true",)))


def _bp5_steps(bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        return _written_steps(_without_polling(folder))


def _without_polling(folder: Path) -> Engine:
    engine = bp5(folder, tuned=False)
    return Engine(engine.engine, engine.name, engine.parameters, (), engine.environment)


def _restart(bench: Workbench) -> Figures:
    steps = 100_000
    with bench.instance(GIB) as instance:
        arguments = ["write", "--address", instance.address(), "--bytes", "64", "--steps", str(steps)]
        with Program("bench_native", arguments, instance.environment) as writer:
            written = run_alone(writer)
        instance.server.kill()
        began = time.monotonic()
        instance.server.start()
        started = time.monotonic() - began
        with forebay.Admin() as admin:
            info = admin.stream(f"{RESERVATION}/steps")
        if info.steps != steps:
            raise RuntimeError(f"{info.steps} of {steps} steps are there after the restart")
    return {"start_seconds": started, "write_seconds": written.step_seconds()}
