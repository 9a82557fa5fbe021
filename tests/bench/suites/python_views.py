# SPDX-License-Identifier: Apache-2.0
"""Views of committed blocks, and computing in place from one Python process to another."""

from __future__ import annotations

import functools
import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import pyarrow as pa

import forebay
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.workbench import KIB, MIB, Workbench
from tests.support.time_limits import seconds

__all__ = ["computing_in_place", "views"]

_STEP_BYTES = 64 * MIB
_SEGMENTS = 16
_RING = 5
#: Until all space of the reservation was written once, as the ring's is after its first round: fresh space is zeroed by
#: the kernel first.
_WARMUP = 20


def computing_in_place() -> Suite:
    """64 MiB that one process fills and another sums, from `allocate` to views, against a ring of shared memory."""
    return Suite(
        name="in-place",
        cases=[
            Case("forebay", _forebay_in_place),
            # The ring takes neither.
            Case("without", functools.partial(_forebay_in_place, checksums=False, statistics=False)),
            Case("shared memory", _shared_memory),
        ],
        rows=[
            Row(
                "allocate, fill, view, sum of 64 MiB", "shared memory", "forebay", "shared memory", "step_seconds", 0.7
            ),
            Row("without checksums and statistics", "shared memory", "without", "shared memory", "step_seconds"),
        ],
        repetitions=3,
        best_of=2,
    )


def views() -> Suite:
    """What a view of a committed block costs does not depend on its size."""
    names = ("numpy", "arrow", "dlpack")
    return Suite(
        name="views",
        cases=[
            Case("64 MiB", functools.partial(_views, 64 * MIB)),
            Case("4 KiB", functools.partial(_views, 4 * KIB)),
        ],
        rows=[
            Row(f"{name} view of 64 MiB", "of 4 KiB", "64 MiB", "4 KiB", f"{name}_seconds", 0.9, guarded=False)
            for name in names
        ],
    )


def _views(size_bytes: int, bench: Workbench) -> Figures:
    takes: dict[str, Callable[[forebay.Variable], object]] = {
        "numpy": lambda variable: variable.view(),
        "arrow": pa.array,
        "dlpack": np.from_dlpack,
    }
    with bench.instance(8 * max(size_bytes, MIB)) as instance:
        with forebay.open(instance.address(), mode="w") as writer, writer.step() as step:
            step["u"] = np.zeros(size_bytes // 8)
        variable = forebay.open(instance.address())[0]["u"]
        figures = {}
        for name, take in takes.items():
            seconds = []
            for _ in range(200):
                began = time.perf_counter()
                take(variable)
                seconds.append(time.perf_counter() - began)
            figures[f"{name}_seconds"] = statistics.median(seconds)
        return figures


def _forebay_in_place(bench: Workbench, **options: bool) -> Figures:
    steps = bench.steps(24, 10) + _WARMUP
    with bench.instance(_SEGMENTS * _STEP_BYTES) as instance:
        return _two_processes(steps, _fill_stream, _sum_stream, (instance.address(), options))


def _shared_memory(bench: Workbench) -> Figures:
    steps = bench.steps(24, 10) + _WARMUP
    blocks = [SharedMemory(create=True, size=_STEP_BYTES) for _ in range(_RING)]
    try:
        context = multiprocessing.get_context("spawn")
        names = [block.name for block in blocks]
        return _two_processes(steps, _fill_ring, _sum_ring, (names, context.Semaphore(_RING), context.Semaphore(0)))
    finally:
        for block in blocks:
            block.close()
            block.unlink()


def _two_processes(
    steps: int, fill: Callable[..., None], add: Callable[..., None], arguments: tuple[Any, ...]
) -> Figures:
    """Seconds from one sum to the next, while another process fills."""
    context = multiprocessing.get_context("spawn")
    told = context.SimpleQueue()
    ready = context.Event()
    processes = [
        context.Process(target=add, args=(steps, told, ready, *arguments)),
        context.Process(target=fill, args=(steps, ready, *arguments)),
    ]
    for process in processes:
        process.start()
    times = [told.get() for _ in range(steps)]
    for process in processes:
        process.join()
        if process.exitcode != 0:
            raise RuntimeError(f"a process ended with status {process.exitcode}")
    return {"step_seconds": (times[-1] - times[_WARMUP - 1]) / (steps - _WARMUP)}


def _fill_stream(steps: int, _ready: Any, address: str, options: dict[str, Any]) -> None:
    # The reader is there before the first step, and `last:4` holds as many steps as the ring has beside the filled one.
    retention = "last:4,consumers:sum"
    with forebay.open(address, mode="w", retention=retention, rendezvous_readers=1, **options) as stream:
        for number in range(steps):
            with stream.step() as step:
                array = step.allocate("u", (_STEP_BYTES // 8,), np.float64)
                array[:] = number
                del array


def _sum_stream(steps: int, told: Any, _ready: Any, address: str, _options: dict[str, Any]) -> None:
    with forebay.open(address, timeout=seconds(60)) as stream, stream.follow("sum", timeout=seconds(60)) as follower:
        for number in range(steps):
            step = next(follower)
            _check(number, float(step["u"].view().sum()))
            step.release()
            told.put(time.perf_counter())


def _fill_ring(steps: int, ready: Any, names: list[str], free: Any, filled: Any) -> None:
    ready.wait()
    blocks = [SharedMemory(name=name) for name in names]
    for number in range(steps):
        free.acquire()
        np.ndarray(_STEP_BYTES // 8, np.float64, buffer=blocks[number % _RING].buf)[:] = number
        filled.release()


def _sum_ring(steps: int, told: Any, ready: Any, names: list[str], free: Any, filled: Any) -> None:
    blocks = [SharedMemory(name=name) for name in names]
    ready.set()
    for number in range(steps):
        filled.acquire()
        _check(number, float(np.ndarray(_STEP_BYTES // 8, np.float64, buffer=blocks[number % _RING].buf).sum()))
        free.release()
        told.put(time.perf_counter())


def _check(number: int, found: float) -> None:
    if found != number * (_STEP_BYTES // 8):
        raise RuntimeError(f"the sum of step {number} is {found}")
