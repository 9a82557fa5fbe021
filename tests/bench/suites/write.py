# SPDX-License-Identifier: Apache-2.0
"""Writing large steps without a reader: into fresh space and into recycled space, by the plugin, natively, in place."""

from __future__ import annotations

import functools
from collections.abc import Callable

from tests.bench.engines import bp5, forebay_plugin
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.programs import Program, Timeline, run_alone
from tests.bench.workbench import MIB, Workbench

__all__ = ["large_steps"]

_BARE = ("StatsLevel=0", "Checksums=false")
#: Slots of a stream that keeps the last two steps: those two, the open one, and one to spare.
_RECYCLED_SLOTS = 4


def large_steps(step_bytes: int) -> Suite:
    """The suite for steps of one variable of this size."""
    size = f"{step_bytes // MIB} MiB"
    figure = "run_bytes_per_second"
    run: Callable[..., Case] = functools.partial(_case, step_bytes)
    return Suite(
        name=f"write-{step_bytes // MIB}",
        cases=[
            Case("raw", functools.partial(_raw, step_bytes)),
            run("bare", _BARE, recycled=False),
            run("default", (), recycled=False),
            run("recycled bare", _BARE, recycled=True),
            run("recycled default", (), recycled=True),
            Case("native default", functools.partial(_native, step_bytes, ())),
            Case(
                "native bare", functools.partial(_native, step_bytes, ("--without-checksums", "--without-statistics"))
            ),
            Case("bp5 tuned", functools.partial(_bp5, step_bytes, True)),
            Case("bp5 default", functools.partial(_bp5, step_bytes, False)),
        ],
        rows=[
            Row(f"write {size}, no statistics or checksums", "raw pwrite", "bare", "raw", figure, 0.95),
            Row(f"write {size}, both", "raw pwrite", "default", "raw", figure, 0.85),
            Row(f"write {size}, our defaults", "BP5 StatsLevel=0", "default", "bp5 tuned", figure, 0.9),
            Row(f"write {size}, our defaults", "BP5 default", "default", "bp5 default", figure, 1.6),
            Row(f"write {size} recycled, neither", "raw pwrite", "recycled bare", "raw", figure, 1.8),
            Row(f"write {size} recycled, both", "raw pwrite", "recycled default", "raw", figure, 1.3),
            Row(f"plugin {size}, neither", "native client", "bare", "native bare", figure, 0.9),
            Row(f"plugin {size}, both", "native client", "default", "native default", figure, 0.9),
        ],
    )


def _step_count(bench: Workbench, step_bytes: int) -> int:
    return bench.steps(512 * MIB // step_bytes + 16, 256 * MIB // step_bytes + 4)


def _figures(timeline: Timeline, step_bytes: int, warmup: int) -> Figures:
    steps = len(timeline.steps) - warmup
    return {
        "run_bytes_per_second": steps * step_bytes / timeline.run_seconds(warmup),
        "median_bytes_per_second": step_bytes / timeline.step_seconds(warmup),
        "step_longest_seconds": max(timeline.seconds(0, 3, warmup)),
        "program_cpu_seconds": timeline.cpu_seconds,
    }


def _raw(step_bytes: int, bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        arguments = ["write", "--path", str(folder / "steps"), "--bytes", str(step_bytes)]
        with Program("bench_raw", [*arguments, "--steps", str(_step_count(bench, step_bytes))], {}) as program:
            return _figures(run_alone(program), step_bytes, 0)


def _bp5(step_bytes: int, tuned: bool, bench: Workbench) -> Figures:
    with bench.scratch() as folder:
        writer = bp5(folder, tuned=tuned).writer(variable_bytes=step_bytes, steps=_step_count(bench, step_bytes))
        with writer:
            return _figures(run_alone(writer), step_bytes, 0)


def _case(step_bytes: int, name: str, parameters: tuple[str, ...], *, recycled: bool) -> Case:
    def run(bench: Workbench) -> Figures:
        warmup = 2 * _RECYCLED_SLOTS if recycled else 0
        steps = _step_count(bench, step_bytes) + warmup
        retention = ("Retention=last:2",) if recycled else ()
        with bench.instance((steps + 4) * step_bytes) as instance:
            engine = forebay_plugin(instance, *parameters, *retention)
            with engine.writer(variable_bytes=step_bytes, steps=steps) as writer:
                return _figures(run_alone(writer), step_bytes, warmup)

    return Case(name, run)


def _native(step_bytes: int, options: tuple[str, ...], bench: Workbench) -> Figures:
    steps = _step_count(bench, step_bytes)
    with bench.instance((steps + 4) * step_bytes) as instance:
        arguments = ["write", "--address", instance.address(), "--bytes", str(step_bytes), "--steps", str(steps)]
        with Program("bench_native", [*arguments, *options], instance.environment) as writer:
            return _figures(run_alone(writer), step_bytes, 0)
