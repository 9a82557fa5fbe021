# SPDX-License-Identifier: Apache-2.0
"""Workloads of burst buffers: streams that are derived in transit."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numexpr
import numpy as np

import forebay
from forebay.connectors.derive import Progress, derive
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.remote_bench import READER_NODE, nodes, remote_instance
from tests.bench.workbench import MIB, RESERVATION, Workbench

__all__ = ["derived_remote_read", "derived_steps", "producer_beside_derivation"]

#: Of u, v and w together.
_STEP_BYTES = 64 * MIB
_ELEMENTS = _STEP_BYTES // 3 // 8
_EXPRESSION = "sqrt(u*u + v*v + w*w)"
_BLOCKS = 4
#: Until the derived stream's space was written once: fresh space is zeroed by the kernel first.
_WARMUP = 6
_KEPT = 3
#: Of 64 MiB; each fourth row and column is 1/16 of it.
_PLANE = (2048, 4096)
_STRIDE = 4
_REMOTE_WARMUP = 2


def derived_steps() -> Suite:
    """An expression over steps of 64 MiB that are there, against numexpr on the same arrays in memory."""
    return Suite(
        name="derive",
        cases=[Case("forebay", _derived), Case("numexpr", _in_memory)],
        rows=[Row("derive speed from u, v, w of 64 MiB", "numexpr", "forebay", "numexpr", "step_seconds", 0.6)],
        repetitions=5,
        best_of=2,
    )


def producer_beside_derivation() -> Suite:
    """A producer that writes for half of its time, alone and while its steps are derived by one thread."""
    return Suite(
        name="derive-producer",
        cases=[
            Case("alone", functools.partial(_paced_producer, False)),
            Case("derived", functools.partial(_paced_producer, True)),
        ],
        rows=[
            Row("producer's step, derived beside it", "no derivation", "derived", "alone", "step_seconds", 0.95),
        ],
        repetitions=3,
        best_of=1,
    )


def derived_remote_read() -> Suite:
    """The same steps on another node behind 1 Gbit/s: whole, and derived with 1/16 of their elements."""
    return Suite(
        name="derive-remote",
        cases=[
            Case("derived", functools.partial(_read_remotely, "derived")),
            Case("whole", functools.partial(_read_remotely, "whole")),
        ],
        rows=[
            Row(
                "derived stream, 1/16 of 64 MiB, over 1 Gbit/s",
                "whole stream",
                "derived",
                "whole",
                "step_seconds",
                12.0,
            )
        ],
        repetitions=3,
        best_of=2,
    )


def _components(seed: int) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    random = np.random.default_rng(seed)
    return {name: random.random(_ELEMENTS) for name in "uvw"}


def _write(stream: forebay.WritableStream, fields: dict[str, np.ndarray[Any, np.dtype[np.float64]]]) -> None:
    with stream.step() as step:
        for name, values in fields.items():
            for start in range(0, _ELEMENTS, -(-_ELEMENTS // _BLOCKS)):
                block = values[start : start + -(-_ELEMENTS // _BLOCKS)]
                step.write(name, block, shape=(_ELEMENTS,), start=(start,))


def _derived(bench: Workbench) -> Figures:
    steps = bench.steps(12, 8) + _WARMUP
    with bench.instance((steps + _KEPT + 4) * _STEP_BYTES) as instance:
        source = instance.address("flow")
        with forebay.open(source, mode="w") as stream:
            for number in range(steps):
                _write(stream, _components(number))
        times = []

        def note(_: Progress, step: forebay.Step) -> None:
            times.append(time.perf_counter())

        expression = f"speed = {_EXPRESSION}"
        derive(
            source,
            instance.address("speed"),
            expressions=expression,
            workers=1,
            retention=f"last:{_KEPT}",
            on_progress=note,
        )
        with forebay.open(instance.address("speed")) as derived:
            fields = _components(steps - 1)
            np.testing.assert_array_equal(derived[steps - 1]["speed"][...], numexpr.evaluate(_EXPRESSION, fields))
    return {"step_seconds": statistics.median(np.diff(times)[_WARMUP:])}


def _in_memory(bench: Workbench) -> Figures:
    """One thread, into memory that was written before, as the derived stream's space was."""
    steps = bench.steps(12, 8) + _WARMUP
    before = numexpr.set_num_threads(1)
    try:
        inputs = [_components(number) for number in range(_KEPT)]
        results = [np.zeros(_ELEMENTS) for _ in range(_KEPT)]
        seconds = []
        for number in range(steps):
            began = time.perf_counter()
            numexpr.evaluate(_EXPRESSION, inputs[number % _KEPT], {}, out=results[number % _KEPT])
            seconds.append(time.perf_counter() - began)
    finally:
        numexpr.set_num_threads(before)
    return {"step_seconds": statistics.median(seconds[_WARMUP:])}


def _paced_producer(with_derivation: bool, bench: Workbench) -> Figures:
    """Seconds that the producer spends in a step; it then pauses as long as the first ones took."""
    steps = bench.steps(30, 16)
    with bench.instance(24 * _STEP_BYTES) as instance:
        source, output = instance.address("flow"), instance.address("speed")
        derivation = multiprocessing.get_context("spawn").Process(target=_derive, args=(source, output))
        fields = _components(0)
        seconds = []
        with forebay.open(source, mode="w", retention="last:4", rendezvous_readers=0) as stream:
            for _ in range(_WARMUP):
                _write(stream, fields)
            if with_derivation:
                derivation.start()
                while not any(info.name == "speed" and info.steps for info in _streams(source)):
                    _write(stream, fields)
            pause = 0.0
            for _ in range(steps):
                began = time.perf_counter()
                _write(stream, fields)
                seconds.append(time.perf_counter() - began)
                pause = pause or seconds[0]
                time.sleep(pause)
        if with_derivation:
            derivation.join()
            if derivation.exitcode != 0:
                raise RuntimeError(f"the derivation ended with status {derivation.exitcode}")
    return {"step_seconds": statistics.median(seconds)}


def _streams(address: str) -> list[forebay.StreamInfo]:
    with forebay.Admin() as admin:
        return admin.streams(address.partition("/")[0])


def _derive(source: str, output: str) -> None:
    derive(source, output, expressions=f"speed = {_EXPRESSION}", workers=1, retention=f"last:{_KEPT}")


#: Seconds of each step from the call for it to its elements in memory.
_READER = """
import json, sys, time
import forebay
seconds = []
with forebay.open(sys.argv[1]) as stream:
    steps = stream.follow()
    while True:
        began = time.perf_counter()
        step = next(steps, None)
        if step is None:
            break
        with step:
            values = step["T"][...]
        seconds.append(time.perf_counter() - began)
        if values.nbytes != int(sys.argv[2]):
            raise SystemExit(f"{values.nbytes} bytes came")
print(json.dumps(seconds))
"""


def _read_remotely(what: str, bench: Workbench) -> Figures:
    """What one reader on another node does, in the same way for both streams."""
    steps = bench.steps(10, 5) + _REMOTE_WARMUP
    with (
        nodes("1gbit") as network,
        remote_instance(bench, network, (steps + 4) * (_STEP_BYTES + _STEP_BYTES // 8)) as instance,
    ):
        source, output = f"{RESERVATION}/flow", f"{RESERVATION}/coarse"
        root = instance.local_environment["FOREBAY_ROOT"]
        with forebay.open(source, mode="w", instance=root) as stream:
            for number in range(steps):
                with stream.step() as step:
                    step["T"] = np.full(_PLANE, number, np.float64)
        if what == "derived":
            derive(source, output, stride=_STRIDE, workers=1, instance=root)
        address, size = (output, _STEP_BYTES // _STRIDE**2) if what == "derived" else (source, _STEP_BYTES)
        done = subprocess.run(
            [*network.prefix(READER_NODE), sys.executable, "-c", _READER, address, str(size)],
            env={**os.environ, **instance.over("tcp")},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    seconds: list[float] = json.loads(done.stdout)
    if len(seconds) != steps:
        raise RuntimeError(f"the reader got {len(seconds)} of {steps} steps")
    return {"step_seconds": statistics.median(seconds[_REMOTE_WARMUP:])}
