# SPDX-License-Identifier: Apache-2.0
"""Reading durable steps of 64 MiB from the page cache: ADIOS2's Get against pread, and Python's views."""

from __future__ import annotations

import functools
import statistics
import time

import forebay
from tests.bench.engines import forebay_plugin
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.programs import Program, run_alone
from tests.bench.workbench import KIB, MIB, Workbench

__all__ = ["committed_steps"]

_BYTES = 64 * MIB
_STEPS = 8
#: Views of each size; many, because one takes microseconds.
_VIEWS = 200


def committed_steps() -> Suite:
    """Get with and without verification, and views of a small and of a large variable."""
    return Suite(
        name="read",
        cases=[
            Case("pread", _pread),
            Case("get", functools.partial(_get, "none")),
            Case("get verified", functools.partial(_get, "read")),
            Case("view of 4 KiB", functools.partial(_views, 4 * KIB)),
            Case("view of 64 MiB", functools.partial(_views, _BYTES)),
        ],
        rows=[
            Row("Get of 64 MiB, Verify=none", "pread", "get", "pread", "data_bytes_per_second", 0.9),
            Row("Get of 64 MiB, Verify=read", "pread", "get verified", "pread", "data_bytes_per_second", 0.7),
            Row("Python view of 64 MiB", "view of 4 KiB", "view of 64 MiB", "view of 4 KiB", "view_seconds", 0.8),
        ],
    )


def _pread(bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        path = str(folder / "steps")
        common = ["--path", path, "--bytes", str(_BYTES)]
        with Program("bench_raw", ["write", *common, "--steps", str(_STEPS), "--sync"], {}) as writer:
            run_alone(writer)
        with Program("bench_raw", ["read", *common, "--steps", str(_STEPS)], {}) as reader:
            timeline = run_alone(reader)
    return {"data_bytes_per_second": _BYTES / statistics.median(timeline.seconds(1, 2))}


def _get(verify: str, bench: Workbench) -> Figures:
    with bench.instance((_STEPS + 4) * _BYTES) as instance:
        # As durable as pread's file: nothing is written back beside the reader.
        engine = forebay_plugin(instance, "Durability=durable", reader=(f"Verify={verify}",))
        with engine.writer(variable_bytes=_BYTES, steps=_STEPS) as writer:
            run_alone(writer)
        with engine.reader(variable_bytes=_BYTES) as reader:
            timeline = run_alone(reader)
    return {
        "data_bytes_per_second": _BYTES / statistics.median(timeline.seconds(1, 2)),
        "step_seconds": timeline.step_seconds(),
    }


def _views(variable_bytes: int, bench: Workbench) -> Figures:
    steps = 2
    with bench.instance(max((steps + 4) * variable_bytes, 16 * MIB)) as instance:
        engine = forebay_plugin(instance)
        with engine.writer(variable_bytes=variable_bytes, steps=steps) as writer:
            run_alone(writer)
        seconds: list[float] = []
        with forebay.open(instance.address()) as stream:
            for number in range(_VIEWS):
                step = stream[number % steps]
                began = time.perf_counter()
                view = step["v00000"][...]
                seconds.append(time.perf_counter() - began)
                if view[0] != number % steps or view.nbytes != variable_bytes:
                    raise RuntimeError("the view shows something else")
                del view, step
    return {"view_seconds": statistics.median(seconds)}
