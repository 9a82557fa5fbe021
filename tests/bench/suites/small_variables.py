# SPDX-License-Identifier: Apache-2.0
"""Writing steps of many small variables, as BP5 does it by default and with everything tuned."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from tests.bench.engines import Engine, bp5, forebay_plugin
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.programs import Timeline, run_alone
from tests.bench.workbench import KIB, MIB, Workbench

__all__ = ["small_variables"]

#: Variables of a step and bytes of each.
_SHAPES = ((64, 256 * KIB), (1024, 4 * KIB))


def small_variables() -> Suite:
    """Both shapes against both peers."""
    cases: list[Case] = []
    rows: list[Row] = []
    for variables, variable_bytes in _SHAPES:
        size = f"{variables} x {variable_bytes // KIB} KiB"
        ours, default, tuned = f"{size} forebay", f"{size} bp5 default", f"{size} bp5 tuned"
        plain: Callable[[Path], Engine] = functools.partial(bp5, tuned=False)
        best: Callable[[Path], Engine] = functools.partial(bp5, tuned=True, huge_pages=True)
        cases += [
            Case(ours, functools.partial(_forebay, variables, variable_bytes)),
            Case(default, functools.partial(_peer, variables, variable_bytes, plain)),
            Case(tuned, functools.partial(_peer, variables, variable_bytes, best)),
        ]
        figure = "run_bytes_per_second"
        rows += [
            Row(f"write {size}, our defaults", "BP5 default", ours, default, figure, 3.0),
            Row(f"write {size}, our defaults", "BP5 StatsLevel=0, malloc tuned", ours, tuned, figure, 1.5),
        ]
    return Suite("write-small", cases, rows)


def _figures(timeline: Timeline, step_bytes: int) -> Figures:
    return {
        "run_bytes_per_second": len(timeline.steps) * step_bytes / timeline.run_seconds(),
        "median_bytes_per_second": step_bytes / timeline.step_seconds(),
        "program_cpu_seconds": timeline.cpu_seconds,
    }


def _forebay(variables: int, variable_bytes: int, bench: Workbench) -> Figures:
    step_bytes = variables * variable_bytes
    steps = bench.steps(32, 16)
    with bench.instance((steps + 4) * (step_bytes + MIB)) as instance:
        engine = forebay_plugin(instance)
        with engine.writer(variable_bytes=variable_bytes, variables=variables, steps=steps) as writer:
            return _figures(run_alone(writer), step_bytes)


def _peer(variables: int, variable_bytes: int, engine: Callable[[Path], Engine], bench: Workbench) -> Figures:
    steps = bench.steps(32, 16)
    with bench.scratch() as folder:
        writer = engine(folder).writer(variable_bytes=variable_bytes, variables=variables, steps=steps)
        with writer:
            return _figures(run_alone(writer), variables * variable_bytes)
