# SPDX-License-Identifier: Apache-2.0
"""Arrays over many steps: loops over blocks, and xarray with Dask, against mapped files, Zarr and BP5."""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import adios2
import dask
import dask.array as da
import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

import forebay
from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.workbench import MIB, Workbench

__all__ = ["arrays_over_steps", "many_steps_as_dataset"]

Array = NDArray[np.float64]

_STEP_BYTES = 64 * MIB
_ROWS = 64  # of a step's array


def arrays_over_steps(block_bytes: int) -> Suite:
    """The mean over a stream of 2 GiB, by a loop over blocks and by Dask, against the same numbers in files."""
    each = f"{block_bytes // MIB} MiB blocks"
    case = functools.partial
    return Suite(
        name=f"mean-{block_bytes // MIB}MiB",
        cases=[
            Case("loop", case(_forebay_mean, block_bytes, _loop_over_blocks)),
            Case("loop memmap", case(_memmap_mean, block_bytes, _loop_over_array)),
            Case("dask", case(_forebay_mean, block_bytes, _xarray_mean)),
            Case("dask memmap", case(_memmap_mean, block_bytes, _dask_mean)),
            Case("dask zarr", case(_zarr_mean, block_bytes)),
            Case("bp5", case(_bp5_mean, block_bytes)),
        ],
        rows=[
            Row(f"loop over {each}", "memmap", "loop", "loop memmap", "mean_seconds", 0.9),
            Row(f"xarray and Dask, {each}", "memmap by Dask", "dask", "dask memmap", "mean_seconds", 0.85),
            Row(f"xarray and Dask, {each}", "Zarr by Dask", "dask", "dask zarr", "mean_seconds", 1.5),
            Row(f"xarray and Dask, {each}", "BP5 by adios2", "dask", "bp5", "mean_seconds", 2.0),
        ],
        repetitions=3,
        repetitions_quick=1,
        best_of=1,  # each case reads several times
    )


def many_steps_as_dataset() -> Suite:
    """10 000 steps opened as a Dataset, each of them looked at."""
    return Suite(
        name="dataset",
        cases=[Case("forebay", _open_dataset)],
        rows=[Row("open 10 000 steps as a Dataset", "1.2 s", "forebay", 1.2, "open_seconds", 4.0)],
        repetitions=3,
        best_of=1,
    )


def _median_of(runs: int, function: Callable[[], float]) -> float:
    """Seconds of a run, the first two left out; each has to give the same result."""
    seconds: list[float] = []
    expected: float | None = None
    for _ in range(runs + 2):
        began = time.perf_counter()
        found = function()
        seconds.append(time.perf_counter() - began)
        if expected is not None and not np.isclose(found, expected, rtol=1e-12):
            raise RuntimeError(f"the mean is {found}, and was {expected} before")
        expected = found
    return statistics.median(seconds[2:])


def _field(step: int) -> Array:
    field: Array = np.arange(_STEP_BYTES // 8, dtype=np.float64) + step
    return field.reshape(_ROWS, -1)


def _rows_of_block(block_bytes: int) -> int:
    return block_bytes // (_STEP_BYTES // _ROWS)


@contextlib.contextmanager
def _stream(bench: Workbench, block_bytes: int) -> Iterator[forebay.Stream]:
    steps = bench.steps(32, 6)
    rows = _rows_of_block(block_bytes)
    # Views pin what they show: readers without a name may hold a quarter of the reservation.
    with bench.instance(4 * (steps + 2) * _STEP_BYTES) as instance:
        with forebay.open(instance.address(), mode="w") as writer:
            for number in range(steps):
                field = _field(number)
                with writer.step() as step:
                    for first in range(0, len(field), rows):
                        step.write("u", field[first : first + rows], shape=field.shape, start=(first, 0))
        with forebay.open(instance.address()) as stream:
            yield stream


def _forebay_mean(block_bytes: int, mean: Callable[[forebay.Stream], Callable[[], float]], bench: Workbench) -> Figures:
    with _stream(bench, block_bytes) as stream:
        return {"mean_seconds": _median_of(5, mean(stream))}


def _loop_over_blocks(stream: forebay.Stream) -> Callable[[], float]:
    def mean() -> float:
        sums = []
        for step in stream:
            variable = step["u"]
            sums += [float(variable.block(number).sum()) for number in range(len(variable.blocks))]
        return sum(sums) / (len(stream) * _STEP_BYTES // 8)

    return mean


def _xarray_mean(stream: forebay.Stream) -> Callable[[], float]:
    dataset = xr.open_dataset(stream, engine="forebay", chunks={}, cache=False)

    def mean() -> float:
        with dask.config.set(scheduler="threads", num_workers=2):
            return float(dataset["u"].mean(skipna=False))  # as Dask and NumPy do

    return mean


def _memmap_mean(block_bytes: int, mean: Callable[[Array, int], Callable[[], float]], bench: Workbench) -> Figures:
    steps = bench.steps(32, 6)
    with bench.scratch() as folder:
        _write_file(folder / "u", steps)
        mapped = np.memmap(folder / "u", np.float64, "r", shape=(steps, *_field(0).shape))
        return {"mean_seconds": _median_of(5, mean(mapped, _rows_of_block(block_bytes)))}


def _write_file(path: Path, steps: int) -> None:
    with path.open("wb") as file:
        for number in range(steps):
            file.write(_field(number).data)


def _loop_over_array(array: Array, rows: int) -> Callable[[], float]:
    def mean() -> float:
        sums = [float(step[first : first + rows].sum()) for step in array for first in range(0, len(step), rows)]
        return sum(sums) / array.size

    return mean


def _dask_mean(array: Any, rows: int) -> Callable[[], float]:
    chunked = da.from_array(array, chunks=(1, rows, array.shape[2]))

    def mean() -> float:
        with dask.config.set(scheduler="threads", num_workers=2):
            return float(chunked.mean().compute())

    return mean


def _zarr_mean(block_bytes: int, bench: Workbench) -> Figures:
    steps, rows = bench.steps(32, 6), _rows_of_block(block_bytes)
    with bench.scratch() as folder:
        shape = _field(0).shape
        stored = zarr.create_array(
            str(folder / "u.zarr"),
            shape=(steps, *shape),
            chunks=(1, rows, shape[1]),
            dtype="float64",
            compressors=None,
        )
        for number in range(steps):
            stored[number] = _field(number)
        return {"mean_seconds": _median_of(5, _dask_mean(stored, rows))}


def _bp5_mean(block_bytes: int, bench: Workbench) -> Figures:
    steps, rows = bench.steps(32, 6), _rows_of_block(block_bytes)
    shape = _field(0).shape
    with bench.scratch() as folder:
        path = str(folder / "u.bp")
        with adios2.Stream(path, "w") as output:
            for number in range(steps):
                field = _field(number)
                output.begin_step()
                for first in range(0, shape[0], rows):
                    block = field[first : first + rows]
                    output.write("u", block, list(shape), [first, 0], list(block.shape))
                output.end_step()
        with adios2.FileReader(path) as stored:

            def mean() -> float:
                total = 0.0
                for number in range(steps):
                    for first in range(0, shape[0], rows):
                        block = stored.read("u", [first, 0], [rows, shape[1]], step_selection=[number, 1])
                        total += float(block.sum())
                return total / (steps * _STEP_BYTES // 8)

            return {"mean_seconds": _median_of(5, mean)}


def _open_dataset(bench: Workbench) -> Figures:
    steps = bench.steps(10_000, 10_000)
    with bench.instance(256 * MIB) as instance:
        with forebay.open(instance.address(), mode="w") as writer:
            for number in range(steps):
                with writer.step() as step:
                    step["u"] = np.zeros(512)
                    step["time"] = number / 10

        def look() -> float:
            with xr.open_dataset(f"forebay://{instance.address()}", engine="forebay", chunks={}) as dataset:
                if dataset.sizes["step"] != steps:
                    raise RuntimeError(f"{dataset.sizes['step']} of {steps} steps are there")
                return float(dataset["time"][-1])

        return {"open_seconds": _median_of(3, look)}
