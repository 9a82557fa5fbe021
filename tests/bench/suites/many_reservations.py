# SPDX-License-Identifier: Apache-2.0
"""What making, using and destroying a reservation costs beside many others, where a centre has Slurm configured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from forebay.manager.client import ManagerClient
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.workbench import GIB, Workbench
from tests.support.instance import CommandLineInstance
from tests.support.slurm_calls import SlurmCalls

__all__ = ["many_reservations"]

_CALLS = ("create", "attach", "detach", "destroy")
_FEW, _MANY = 1000, 10_000
_SLOWER_MAX = 1.5
_MIB = 1 << 20
#: As many as the manager makes at a time for one user.
_MAKERS = 2


def many_reservations() -> Suite:
    """Medians with 10 000 reservations of the smallest size against those with 1000."""
    return Suite(
        name="many-reservations",
        cases=[Case("calls", _calls)],
        rows=[
            Row(
                f"{name} beside {_MANY} reservations",
                f"beside {_FEW}",
                "calls",
                "calls",
                f"{name}_many_seconds",
                1 / _SLOWER_MAX,
                peer_figure=f"{name}_few_seconds",
            )
            for name in _CALLS
        ],
        repetitions=1,
        repetitions_quick=1,
        best_of=1,
    )


def _calls(bench: Workbench) -> Figures:
    figures: Figures = {}
    with bench.scratch() as folder:
        instance = CommandLineInstance(folder / "root", capacity=str(64 * GIB))
        SlurmCalls(folder, instance, "streams_share = 0.0")
        with instance:
            made = 0
            for label, count in (("few", _FEW), ("many", bench.steps(_MANY, 2 * _FEW))):
                _make(instance, made, count)
                made = count
                for name, seconds in _medians(instance, bench.steps(100, 30)).items():
                    figures[f"{name}_{label}_seconds"] = seconds
    return figures


def _make(instance: CommandLineInstance, first: int, end: int) -> None:
    """Files alone: nothing is preallocated for them."""

    def make(part: int) -> None:
        with instance.manager() as manager:
            for number in range(first + part, end, _MAKERS):
                _create(manager, f"held{number}")

    with ThreadPoolExecutor(_MAKERS) as makers:
        list(makers.map(make, range(_MAKERS)))


def _create(manager: ManagerClient, name: str) -> None:
    manager.create(name, 0, files=_MIB, persistent=True)


def _medians(instance: CommandLineInstance, count: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in _CALLS}

    def timed(name: str, call: Callable[[], object]) -> None:
        began = time.perf_counter()
        call()
        seconds[name].append(time.perf_counter() - began)

    with instance.manager() as manager:
        for _ in range(count):
            timed("create", lambda: _create(manager, "own"))
            timed("attach", lambda: manager.attach("own", "bench"))
            timed("detach", lambda: manager.detach("own", "bench"))
            timed("destroy", lambda: manager.destroy("own", force=False))
    return {name: statistics.median(values) for name, values in seconds.items()}
